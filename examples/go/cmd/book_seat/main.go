// Command book_seat is a tool that asks a person in the middle of a call. No process waits for the answer.
package main

import (
	"encoding/json"
	"fmt"

	"runwire"
)

var spec = runwire.Spec{
	Name:        "book_seat",
	Description: "Book a seat on a flight. A person chooses the seat",
	SideEffects: "external",
}

var seatSchema = json.RawMessage(`{"type": "string", "pattern": "^[0-9]{1,2}[A-F]$"}`)

type flight struct {
	Flight string `json:"flight"`
}

func bookSeat(ctx *runwire.Context, args flight) (map[string]any, error) {
	// The function runs again when there is an answer. What it must not do twice, it notes in the state.
	if ctx.State["offer"] == nil {
		ctx.State["offer"] = "offer of " + ctx.Call.IdempotencyKey
	}
	var seat string
	question := runwire.Question{Title: "Which seat on " + args.Flight + "?", InputSchema: seatSchema}
	if err := ctx.Pause(question, &seat); err != nil {
		return nil, err
	}
	return map[string]any{"answer": fmt.Sprintf("%s: seat %s is booked", args.Flight, seat), "by": ctx.State["offer"]}, nil
}

func main() { runwire.Main(spec, bookSeat) }
