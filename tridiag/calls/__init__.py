"""From the caller's arguments to a backend and back: the plan of a call, where its results go, what was singular."""
