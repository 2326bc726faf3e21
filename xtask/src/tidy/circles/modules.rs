//! The modules of a crate as its files declare them, with the definitions, imports and mentions of each.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

use crate::tidy::syntax::{attributes, is_for_tests};
use crate::tidy::workspace::SourceFile;

/// The modules of one crate; the first is its root.
pub(super) struct Modules<'a>(pub(super) Vec<Module<'a>>);

/// A module, by its index in [`Modules`].
pub(super) type Place = usize;

/// One module.
pub(super) struct Module<'a> {
    file: &'a str,
    pub(super) parent: Option<Place>,
    pub(super) children: BTreeMap<String, Place>,
    /// Items that it defines, macros included.
    pub(super) items: BTreeSet<String>,
    /// Bindings of its `use` lines: a name, or `None` for a glob, with the path.
    pub(super) imports: Vec<(Option<String>, Vec<String>)>,
    /// Paths in its code that may name an item of another module.
    mentions: Vec<Vec<String>>,
}

impl<'a> Modules<'a> {
    /// Reads the modules of the crate with this root, in every file that it declares.
    pub(super) fn read(root: &'a SourceFile, files: &BTreeMap<&'a str, &'a SourceFile>) -> Self {
        let mut modules = Self(Vec::new());
        let dir = root.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        modules.add(None, &root.path, dir, &root.syntax.items, files);
        modules
    }

    /// Yields each mentioned path with its module.
    pub(super) fn mentions(&self) -> impl Iterator<Item = (Place, &[String])> {
        self.0.iter().enumerate().flat_map(|(place, module)| {
            module.mentions.iter().map(move |path| (place, path.as_slice()))
        })
    }

    /// Returns the file of a module.
    pub(super) fn file(&self, place: Place) -> &'a str {
        self.0[place].file
    }

    /// Adds a module and those inside it; the files of its children are in `dir`.
    fn add(
        &mut self,
        parent: Option<Place>,
        file: &'a str,
        dir: &str,
        items: &'a [Item],
        files: &BTreeMap<&'a str, &'a SourceFile>,
    ) -> Place {
        let place = self.0.len();
        let mut reader = Reader::new(file, parent);
        items.iter().for_each(|item| reader.visit_item(item));
        self.0.push(reader.module);
        for child in reader.children {
            let name = child.ident.to_string();
            let dir = format!("{dir}/{name}");
            let child = match &child.content {
                Some((_, items)) => self.add(Some(place), file, &dir, items, files),
                None => {
                    let Some(file) = files.get(format!("{dir}.rs").as_str()) else { continue };
                    self.add(Some(place), &file.path, &dir, &file.syntax.items, files)
                }
            };
            self.0[place].children.insert(name, child);
        }
        place
    }
}

/// Reads the items of one module, without those of its children.
struct Reader<'a> {
    module: Module<'a>,
    children: Vec<&'a ItemMod>,
}

impl<'a> Reader<'a> {
    fn new(file: &'a str, parent: Option<Place>) -> Self {
        let module = Module {
            file,
            parent,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: Vec::new(),
            mentions: Vec::new(),
        };
        Self { module, children: Vec::new() }
    }

    /// Adds the bindings of a `use` line; the paths of one that is not a re-export are mentions.
    fn import(&mut self, tree: &UseTree, prefix: &[String], hands_on: bool) {
        let joined = |name: &dyn ToString| [prefix, &[name.to_string()]].concat();
        let (binding, path) = match tree {
            UseTree::Path(path) => return self.import(&path.tree, &joined(&path.ident), hands_on),
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, prefix, hands_on));
            }
            UseTree::Glob(_) => (None, prefix.to_vec()),
            UseTree::Name(name) if name.ident == "self" => {
                (prefix.last().cloned(), prefix.to_vec())
            }
            UseTree::Name(name) => (Some(name.ident.to_string()), joined(&name.ident)),
            UseTree::Rename(rename) => (Some(rename.rename.to_string()), joined(&rename.ident)),
        };
        if !hands_on {
            self.module.mentions.push(path.clone());
        }
        self.module.imports.push((binding, path));
    }

    /// Finds paths in the tokens of a macro; a single word in lower case may be a field or a variable.
    fn mention_tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.mention_words(&mut path);
                    }
                    path.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                other => {
                    self.mention_words(&mut path);
                    if let TokenTree::Group(group) = other {
                        self.mention_tokens(group.stream());
                    }
                }
            }
        }
        self.mention_words(&mut path);
    }

    fn mention_words(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 || path.iter().any(|word| word.starts_with(char::is_uppercase)) {
            self.module.mentions.push(path);
        }
    }
}

impl<'a> Visit<'a> for Reader<'a> {
    fn visit_item(&mut self, item: &'a Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        let name = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        self.module.items.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        if !matches!(item, ImplItem::Fn(item) if is_for_tests(&item.attrs)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        self.children.push(item);
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let hands_on = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &[], hands_on);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let words = path.segments.iter().map(|segment| segment.ident.to_string());
        self.module.mentions.push(words.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a Macro) {
        self.mention_tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}
