//! How the whole answer settles what was heard of it.

use backstop_provider_http::CallDraft;

use super::{Body, ItemDraft, Items, Kind};

impl Body {
    /// Returns whether this is a call of the same name with the same arguments.
    fn is_alike(&self, call: &CallDraft) -> bool {
        matches!(self, Self::Call(own) if own.name == call.name && own.has_same_arguments(call))
    }

    /// Returns whether this may be a call that was told in its place.
    fn may_be(&self, call: &CallDraft) -> bool {
        let Self::Call(own) = self else { return false };
        own.id.is_empty() || call.id.is_empty() || self.is_alike(call)
    }
}

impl Items {
    /// Fills in what these items do not repeat of those that were heard: calls and texts that were done, all
    /// of a kind that they have nothing of, and parts of the items that they have.
    pub(in crate::responses) fn or(mut self, heard: Self) -> Self {
        let has = [Kind::Thought, Kind::Text, Kind::Call].map(|kind| self.has(kind));
        let [has_thoughts, has_text, has_calls] = has;
        let lost_texts = self.unrepeated_texts(&heard);
        for item in heard.items {
            let is_lost = match item.body.kind() {
                Kind::Call => !has_calls || item.is_done,
                Kind::Thought => !has_thoughts,
                Kind::Text => !has_text || lost_texts.contains(&item.at),
            };
            let known = match item.body.kind() {
                Kind::Text if is_lost => None,
                Kind::Text if !lost_texts.is_empty() => self.repeated_text(&item),
                _ => self.repeated(&item),
            };
            match (known, &item.body) {
                // Its place is the one that was told while it came.
                (Some(known), Body::Text { phase: heard, .. }) => {
                    known.at = item.at;
                    if let Body::Text { phase, .. } = &mut known.body {
                        *phase = phase.take().or_else(|| heard.clone());
                    }
                }
                (Some(known), Body::Call(call)) => {
                    known.at = item.at;
                    if let Body::Call(known) = &mut known.body {
                        known.fill(call);
                    }
                }
                (Some(known), Body::Thought { parts: more, data: wanted }) => {
                    if let Body::Thought { parts, data } = &mut known.body {
                        if !has_thoughts {
                            parts.clone_from(more);
                        }
                        if data.is_none() {
                            data.clone_from(wanted);
                        }
                    }
                }
                (None, _) if is_lost => self.items.push(item),
                _ => {}
            }
        }
        self.items.sort_by_key(|item| (item.at, item.body.kind()));
        self
    }

    /// Returns the item that is the same as one that was heard. Calls are known by their ids; some endpoints
    /// make new ones for the whole answer.
    fn repeated(&mut self, heard: &ItemDraft) -> Option<&mut ItemDraft> {
        let here = self.by_place.get(&(heard.body.kind(), heard.at)).copied();
        let at = match &heard.body {
            Body::Call(call) => {
                let named = self.by_call_id.get(&call.id).copied();
                let here = here.filter(|at| self.items[*at].body.may_be(call));
                named.or(here).or_else(|| {
                    let mut items = self.items.iter();
                    let has_no_ids = call.id.is_empty() || self.by_call_id.is_empty();
                    items.position(|item| has_no_ids && item.body.is_alike(call))
                })?
            }
            Body::Text { .. } | Body::Thought { .. } => here?,
        };
        self.items.get_mut(at)
    }

    /// Returns the text that repeats one that was heard.
    fn repeated_text(&mut self, heard: &ItemDraft) -> Option<&mut ItemDraft> {
        let said = heard.text()?.trim();
        self.items.iter_mut().find(|item| item.text().is_some_and(|text| text.contains(said)))
    }

    /// Returns the places of texts that were done and that these items leave out. As many texts as were
    /// heard are those that were heard, in other words at most.
    fn unrepeated_texts(&self, heard: &Self) -> Vec<u64> {
        fn texts(items: &Items) -> impl Iterator<Item = (&ItemDraft, &str)> {
            items.items.iter().filter_map(|item| Some((item, item.text()?)))
        }
        if texts(self).count() >= texts(heard).filter(|(item, _)| item.is_done).count() {
            return Vec::new();
        }
        let is_repeated = |said: &str| texts(self).any(|(_, text)| text.contains(said.trim()));
        let lost = texts(heard).filter(|(item, said)| item.is_done && !is_repeated(said));
        lost.map(|(item, _)| item.at).collect()
    }
}
