//! The payloads: one struct per event type, named as in the catalogue.
//!
//! Several crates build and read them, so their fields are public and each has a constructor; a change of their shape
//! is a change of [`SCHEMA`](super::SCHEMA).

// The macro has to precede the modules that use it.
macro_rules! payload {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl $name {
            /// The fields, by their names in JSON.
            pub(crate) const FIELDS: &[(&str, $crate::event::Shape)] = &[$((
                $crate::event::shape::json_name(stringify!($field)),
                <$kind as $crate::event::shape::Shaped>::SHAPE,
            )),*];
        }
    };
}

mod around;
mod behavior;
mod model;
mod run;
mod settlement;
mod tool;
mod waiting;

pub use around::*;
pub use behavior::*;
pub use model::*;
pub use run::*;
pub use settlement::*;
pub use tool::*;
pub use waiting::*;
