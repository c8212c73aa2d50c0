"""The rules of sessions. Pure: no clock, no await. The state that they decide on: `services.shared.sessions.state`."""
