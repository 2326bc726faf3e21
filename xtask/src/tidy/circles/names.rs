//! Where the item stands that a path names, as the compiler would look for it.

use crate::tidy::circles::modules::{Modules, Place};

/// Re-exports of re-exports, at most; two globs may lead to each other for ever.
const MAX_HOPS: usize = 6;

/// An item.
pub(super) struct Found {
    /// The module it stands in.
    pub(super) module: Place,
    pub(super) name: String,
}

impl Modules<'_> {
    /// Follows a path that stands in a module to its item; `None` when it names a module, or leads elsewhere.
    pub(super) fn find(&self, from: Place, path: &[String]) -> Option<Found> {
        match self.follow(from, path, 0)? {
            Target::Item(found) => Some(found),
            Target::Module(_) => None,
        }
    }

    fn follow(&self, from: Place, path: &[String], hops: usize) -> Option<Target> {
        let mut place = from;
        for (index, word) in path.iter().enumerate() {
            place = match word.as_str() {
                "crate" => 0,
                "self" => place,
                "super" => self.0[place].parent?,
                name => match self.look_up(place, name, index + 1 == path.len(), hops)? {
                    Target::Module(module) => module,
                    // What follows an item are variants and associated items.
                    item @ Target::Item(_) => return Some(item),
                },
            };
        }
        Some(Target::Module(place))
    }

    /// Finds what a name means in a module; at the end of a path it is an item before it is a module.
    fn look_up(&self, place: Place, name: &str, last: bool, hops: usize) -> Option<Target> {
        if hops > MAX_HOPS {
            return None;
        }
        let module = &self.0[place];
        let item =
            || module.items.contains(name).then(|| Found { module: place, name: name.to_owned() });
        let item = || item().map(Target::Item);
        let child = || module.children.get(name).copied().map(Target::Module);
        let named = || {
            let mut named =
                module.imports.iter().filter(|(bound, _)| bound.as_deref() == Some(name));
            named.find_map(|(_, path)| self.follow(place, path, hops + 1))
        };
        let globs = || {
            let mut globs = module.imports.iter().filter(|(bound, _)| bound.is_none());
            globs.find_map(|(_, path)| match self.follow(place, path, hops + 1)? {
                Target::Module(from) if from != place => self.look_up(from, name, last, hops + 1),
                Target::Module(_) | Target::Item(_) => None,
            })
        };
        let here = if last { item().or_else(child) } else { child().or_else(item) };
        here.or_else(named).or_else(globs)
    }
}

enum Target {
    Item(Found),
    Module(Place),
}
