package runs

import (
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go"
)

// Pause is a call of a run that waits for a person. Token says what the person was shown: a decision repeats it.
type Pause struct {
	Run       string          `json:"-"`
	ID        string          `json:"pause_id"`
	Reason    string          `json:"reason"`
	Title     string          `json:"title"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Token     string          `json:"token"`
}

// Pauses returns what a record of a run's log asks of people. A message that is no stored record asks nothing.
func Pauses(message *nats.Msg) []Pause {
	found, err := read(message)
	if err != nil || found.kind != "log" {
		return nil
	}
	var pauses []Pause
	for _, event := range found.events {
		pause := Pause{Run: strings.Split(message.Subject, ".")[2]}
		if event.Type == "paused" && json.Unmarshal(event.Body, &pause) == nil && pause.ID != "" {
			pauses = append(pauses, pause)
		}
	}
	return pauses
}
