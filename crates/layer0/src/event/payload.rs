//! The payloads, one struct per event type, named as in the catalogue.
//!
//! They are data that several crates build and read, so their fields are open and each has a
//! constructor; a change of shape is a change of [`SCHEMA`](super::SCHEMA).

// Before the modules, which see it without importing it from here.
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
            /// The fields, by the names they have in JSON.
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
