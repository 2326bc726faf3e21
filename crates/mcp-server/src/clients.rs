//! Limits for each client of the HTTP endpoint, identified by its address.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of open sessions of a client; a further one closes the oldest. Clients begin another session if
/// theirs is gone.
pub(crate) const MAX_SESSIONS: usize = 64;
/// Maximum number of open sessions of all clients.
const MAX_SESSIONS_IN_ALL: usize = 1_024;

/// The name of a session.
pub(crate) type SessionId = Arc<str>;

/// The open messages and sessions of each client.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<OpenClients>);

#[derive(Debug, Default)]
struct OpenClients {
    /// Sessions with their clients, oldest first.
    sessions: VecDeque<(IpAddr, SessionId)>,
    /// The number of unfinished messages of each client.
    messages: BTreeMap<IpAddr, usize>,
}

impl Clients {
    /// Adds a session; returns the sessions to close for it.
    pub(crate) fn open_session(&self, client: IpAddr, session: SessionId) -> Vec<SessionId> {
        let sessions = &mut self.lock().sessions;
        sessions.push_back((client, session));
        let own = sessions.iter().filter(|(of, _)| *of == client).count();
        let mut closed = Vec::new();
        if own > MAX_SESSIONS
            && let Some(oldest) = sessions.iter().position(|(of, _)| *of == client)
        {
            closed.extend(sessions.remove(oldest));
        }
        while sessions.len() > MAX_SESSIONS_IN_ALL {
            closed.extend(sessions.pop_front());
        }
        closed.into_iter().map(|(_, session)| session).collect()
    }

    /// Removes a session that has ended.
    pub(crate) fn close_session(&self, session: &str) {
        self.lock().sessions.retain(|(_, open)| **open != *session);
    }

    /// Counts an unfinished message until the returned guard is dropped; `None` if the client already has this many.
    pub(crate) fn wait_for_message(
        self: &Arc<Self>,
        client: IpAddr,
        most: usize,
    ) -> Option<MessageGuard> {
        let count = &mut self.lock().messages;
        let count = count.entry(client).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(MessageGuard { clients: Arc::clone(self), client })
    }

    fn lock(&self) -> MutexGuard<'_, OpenClients> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of an unfinished message.
pub(crate) struct MessageGuard {
    clients: Arc<Clients>,
    client: IpAddr,
}

impl Drop for MessageGuard {
    fn drop(&mut self) {
        let messages = &mut self.clients.lock().messages;
        if let Some(count) = messages.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                messages.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// Spec: Q10
    #[test]
    fn oldest_session_of_a_client_makes_room() {
        let clients = Clients::default();
        assert!(clients.open_session(address(1), "other".into()).is_empty());
        for number in 0..MAX_SESSIONS {
            assert!(clients.open_session(address(2), number.to_string().into()).is_empty());
        }
        assert_eq!(clients.open_session(address(2), "next".into()), ["0".into()]);
        clients.close_session("1");
        assert!(clients.open_session(address(2), "another".into()).is_empty());
        let all = (0..=u8::MAX).flat_map(|last| (0..8).map(move |number| (last, number)));
        let closed = all.flat_map(|(last, number)| {
            clients.open_session(address(last), format!("{last}-{number}").into())
        });
        assert!(closed.count() > 0);
        assert_eq!(clients.lock().sessions.len(), MAX_SESSIONS_IN_ALL);
    }

    /// Spec: Q10
    #[test]
    fn unfinished_messages_are_counted_per_client() {
        let clients = Arc::new(Clients::default());
        let first = clients.wait_for_message(address(1), 1);
        assert!(first.is_some() && clients.wait_for_message(address(1), 1).is_none());
        assert!(clients.wait_for_message(address(2), 1).is_some());
        drop(first);
        assert!(clients.wait_for_message(address(1), 1).is_some());
        assert!(clients.lock().messages.is_empty());
    }
}
