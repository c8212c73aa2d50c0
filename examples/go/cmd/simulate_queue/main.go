// Command simulate_queue is a tool that takes its time: it simulates a waiting line and shows the mean wait while it settles.
package main

import (
	"cmp"
	"fmt"

	"runwire"
	"runwire-examples/queue"
)

const (
	defaultCustomers = 200_000
	lookEvery        = 10_000
)

var spec = runwire.Spec{
	Name:        "simulate_queue",
	Description: "Simulate a waiting line: how long customers wait when they arrive at random and are served by several servers",
	Idempotent:  true,
	SideEffects: "none",
	TimeoutS:    30,
	Tags:        []string{"simulation", "capacity"},
}

type result struct {
	Answer  string         `json:"answer"`
	Figures queue.Figures  `json:"figures"`
	Chart   map[string]any `json:"chart" doc:"ECharts option" schema:"artifact=true stream=true stream_id=chart"`
}

func simulateQueue(ctx *runwire.Context, question queue.Question) (*result, error) {
	question.Customers = cmp.Or(question.Customers, defaultCustomers)
	var points [][2]float64
	next := 0
	figures, err := queue.Simulate(question, lookEvery, func(served int, meanWaitS float64) error {
		if err := ctx.Err(); err != nil || served < next && served < question.Customers {
			return err
		}
		// The mean settles slowly, so the pauses between pieces grow.
		next = served + served/4
		points = append(points, [2]float64{float64(served), meanWaitS})
		ctx.Artifact("chart", "echarts", chart(points), served == question.Customers)
		ctx.Progress(fmt.Sprintf("%d of %d customers", served, question.Customers), float64(served)/float64(question.Customers))
		return nil
	})
	if err != nil {
		return nil, err
	}
	answer := fmt.Sprintf("With %d servers a customer waits %.3g s on average (theory: %.3g s), 99 %% wait at most %.3g s; servers are busy %.0f %% of the time.",
		question.Servers, figures.MeanWaitS, figures.ExpectedWaitS, figures.P99WaitS, figures.Utilisation*100)
	return &result{Answer: answer, Figures: figures, Chart: chart(points)}, nil
}

// chart is what Apache ECharts takes; every piece replaces the one before.
func chart(points [][2]float64) map[string]any {
	return map[string]any{
		"title":  map[string]any{"text": "Mean wait in s, by customers served"},
		"xAxis":  map[string]any{"type": "value"},
		"yAxis":  map[string]any{"type": "value"},
		"series": []any{map[string]any{"id": "mean wait", "type": "line", "data": points}},
	}
}

func main() { runwire.Main(spec, simulateQueue) }
