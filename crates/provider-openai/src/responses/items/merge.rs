//! Merging of the whole answer with the items received before.

use std::collections::{BTreeMap, VecDeque};

use backstop_provider_http::CallDraft;

use super::{ItemBody, ItemDraft, ItemKind, Items};

impl ItemBody {
    /// Returns whether this may be the call received at its place: neither name nor id shows that
    /// it is another.
    fn may_be(&self, call: &CallDraft) -> bool {
        let Self::Call(own) = self else { return false };
        let has_its_name = own.name.is_empty() || call.name.is_empty() || own.name == call.name;
        has_its_name && (own.id.is_empty() || call.id.is_empty())
    }

    /// Returns the name and the arguments of a call.
    fn words(&self) -> Option<Words> {
        let Self::Call(call) = self else { return None };
        Some((call.name.clone(), call.whole_arguments().to_string()))
    }
}

/// The name of a call, and its arguments.
type Words = (String, String);

/// The property by which a call is matched with one received before.
#[derive(Clone, Copy)]
enum Match {
    /// The id, the name and the arguments: an endpoint may give one id to several calls.
    Whole,
    Id,
    Words,
    Place,
}

impl Items {
    /// Adds items received before that these do not repeat: complete calls and texts, all of a kind
    /// that is missing here, and parts of repeated items.
    pub(in crate::responses) fn or(mut self, heard: Self) -> Self {
        let has = [ItemKind::Thought, ItemKind::Text, ItemKind::Call].map(|kind| self.has(kind));
        let [has_thoughts, has_text, has_calls] = has;
        let lost_texts = self.unrepeated_texts(&heard);
        let repeated_calls = self.find_repeated_calls(&heard);
        for (position, item) in heard.items.into_iter().enumerate() {
            let is_lost = match item.body.kind() {
                ItemKind::Call => !has_calls || item.is_done,
                ItemKind::Thought => !has_thoughts,
                ItemKind::Served => !self.has_served(&item),
                ItemKind::Text => !has_text || lost_texts.contains(&item.at),
            };
            let known = match item.body.kind() {
                ItemKind::Text if is_lost => None,
                ItemKind::Text if !lost_texts.is_empty() => self.repeated_text(&item),
                ItemKind::Call => repeated_calls.get(&position).map(|at| &mut self.items[*at]),
                kind => {
                    let here = self.by_place.get(&(kind, item.at)).copied();
                    here.map(|at| &mut self.items[at])
                }
            };
            match (known, &item.body) {
                // Its place is the one that was streamed.
                (Some(known), ItemBody::Text { phase: heard, .. }) => {
                    known.at = item.at;
                    if let ItemBody::Text { phase, .. } = &mut known.body {
                        *phase = phase.take().or_else(|| heard.clone());
                    }
                }
                (Some(known), ItemBody::Call(call)) => {
                    known.at = item.at;
                    if let ItemBody::Call(known) = &mut known.body {
                        known.fill(call);
                    }
                }
                (Some(known), ItemBody::Thought { parts: more, data: wanted, id: name }) => {
                    if let ItemBody::Thought { parts, data, id } = &mut known.body {
                        if !has_thoughts {
                            parts.clone_from(more);
                        }
                        if data.is_none() {
                            data.clone_from(wanted);
                            id.clone_from(name);
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

    /// Returns the positions of calls received before, each with that of the call that repeats it.
    /// They are matched by ids with names and arguments, by ids alone, by names and arguments alone (some endpoints make
    /// new ids for the whole answer), then by places.
    fn find_repeated_calls(&self, heard: &Self) -> BTreeMap<usize, usize> {
        let mut found = BTreeMap::new();
        let mut is_taken = vec![false; self.items.len()];
        let may_have_no_ids = self.by_call_id.is_empty();
        // Read once, as reading them for each comparison would take too long.
        let own_words: Vec<Option<Words>> = self.items.iter().map(|it| it.body.words()).collect();
        let heard_words: Vec<Option<Words>> =
            heard.items.iter().map(|it| it.body.words()).collect();
        let mut by_words: BTreeMap<&Words, VecDeque<usize>> = BTreeMap::new();
        let mut by_whole: BTreeMap<(&str, &Words), VecDeque<usize>> = BTreeMap::new();
        for (at, words) in own_words.iter().enumerate() {
            let (Some(words), ItemBody::Call(call)) = (words, &self.items[at].body) else {
                continue;
            };
            by_words.entry(words).or_default().push_back(at);
            if !call.id.is_empty() {
                by_whole.entry((&call.id, words)).or_default().push_back(at);
            }
        }
        for step in [Match::Whole, Match::Id, Match::Words, Match::Place] {
            for (position, item) in heard.items.iter().enumerate() {
                let ItemBody::Call(call) = &item.body else { continue };
                if found.contains_key(&position) {
                    continue;
                }
                let here = self.by_place.get(&(ItemKind::Call, item.at)).copied();
                let at = match step {
                    Match::Whole => heard_words[position].as_ref().and_then(|words| {
                        by_whole.get_mut(&(&*call.id, words)).and_then(VecDeque::pop_front)
                    }),
                    Match::Id => self.by_call_id.get(&call.id).copied(),
                    Match::Words => heard_words[position].as_ref().and_then(|words| {
                        let is_here =
                            |at: &usize| !is_taken[*at] && own_words[*at].as_ref() == Some(words);
                        let anywhere = call.id.is_empty() || may_have_no_ids;
                        here.filter(is_here).or_else(|| {
                            let alike = by_words.get_mut(words).filter(|_| anywhere)?;
                            while alike.front().is_some_and(|at| is_taken[*at]) {
                                alike.pop_front();
                            }
                            alike.front().copied()
                        })
                    }),
                    Match::Place => here.filter(|at| self.items[*at].body.may_be(call)),
                };
                if let Some(at) = at.filter(|at| !is_taken[*at]) {
                    is_taken[at] = true;
                    found.insert(position, at);
                }
            }
        }
        found
    }

    /// Returns the text that repeats one received before.
    fn repeated_text(&mut self, heard: &ItemDraft) -> Option<&mut ItemDraft> {
        let said = heard.text()?.trim();
        self.items.iter_mut().find(|item| item.text().is_some_and(|text| text.contains(said)))
    }

    /// Returns the places of complete texts that these items omit. If there are as many texts as
    /// before, all are repeated, possibly in other words.
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
