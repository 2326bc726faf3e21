//! Resolution of a path to its item, as the compiler does it.

use crate::tidy::circles::modules::{Modules, Place};

/// Limit of re-exports of re-exports; two globs may lead to each other forever.
const MAX_HOPS: usize = 6;

/// An item.
pub(super) struct Found {
    /// The module that defines it.
    pub(super) module: Place,
    pub(super) name: String,
}

impl Modules<'_> {
    /// Resolves a path in a module to its item; returns `None` if it names a module, or an item elsewhere.
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
                    // Variants and associated items follow an item.
                    item @ Target::Item(_) => return Some(item),
                },
            };
        }
        Some(Target::Module(place))
    }

    /// Resolves a name in a module; at the end of a path, items have precedence over modules.
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
