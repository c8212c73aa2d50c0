// Package queue simulates customers who arrive at random, wait in one line and are served by several servers (M/M/c).
//
// Nothing here knows of NATS. The same question and seed give the same figures.
package queue

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
)

// Question says what to simulate. Times are in seconds; arrivals and service are exponentially distributed.
type Question struct {
	ArrivalsPerS float64 `json:"arrivals_per_s" schema:"exclusiveMinimum=0"`
	ServiceS     float64 `json:"service_s" schema:"exclusiveMinimum=0" doc:"mean time that one customer needs"`
	Servers      int     `json:"servers" schema:"minimum=1 maximum=10000"`
	Customers    int     `json:"customers,omitempty" schema:"minimum=1 maximum=1000000000 default=200000"`
	Seed         uint64  `json:"seed,omitempty" schema:"default=0" doc:"the same seed gives the same figures"`
}

// Figures are what came out. ExpectedWaitS is the mean wait by Erlang's formula, to compare with.
type Figures struct {
	Utilisation   float64 `json:"utilisation"`
	WaitedShare   float64 `json:"waited_share"`
	MeanWaitS     float64 `json:"mean_wait_s"`
	MedianWaitS   float64 `json:"median_wait_s"`
	P95WaitS      float64 `json:"p95_wait_s"`
	P99WaitS      float64 `json:"p99_wait_s"`
	ExpectedWaitS float64 `json:"expected_wait_s"`
}

// Check complains about a question that has no answer.
func (q Question) Check() error {
	load := q.ArrivalsPerS * q.ServiceS
	switch {
	case !(q.ArrivalsPerS > 0) || !(q.ServiceS > 0) || q.Servers < 1 || q.Customers < 1 || math.IsInf(load, 1):
		return fmt.Errorf("arrivals_per_s, service_s, servers and customers must be above zero")
	case load >= float64(q.Servers):
		return fmt.Errorf("the line grows without end: %g s of work arrive every second, so at least %.0f servers are needed", load, math.Floor(load)+1)
	}
	return nil
}

// ExpectedWait is the mean wait by Erlang's C formula.
func (q Question) ExpectedWait() float64 {
	load := q.ArrivalsPerS * q.ServiceS
	blocked := 1.0
	for n := 1; n <= q.Servers; n++ {
		blocked = load * blocked / (float64(n) + load*blocked)
	}
	spare := float64(q.Servers) - load
	waiting := float64(q.Servers) * blocked / (spare + load*blocked)
	return waiting * q.ServiceS / spare
}

// Simulate serves all customers. It calls look after every step-th with the number served and the mean wait so far, and stops early when
// look returns an error, with that error.
func Simulate(q Question, step int, look func(served int, meanWaitS float64) error) (Figures, error) {
	if err := q.Check(); err != nil {
		return Figures{}, err
	}
	random := rand.New(rand.NewPCG(q.Seed, 0x72756e77697265))
	free := make(times, q.Servers) // when each server is free again; zeros are a heap
	waits := histogram{}
	now, total, busy := 0.0, 0.0, 0.0
	for served := 1; served <= q.Customers; served++ {
		now += random.ExpFloat64() / q.ArrivalsPerS
		wait := max(0, free[0]-now)
		service := random.ExpFloat64() * q.ServiceS
		free[0] = now + wait + service
		heap.Fix(&free, 0)
		total += wait
		busy += service
		waits.add(wait / q.ServiceS)
		if served%step == 0 || served == q.Customers {
			if err := look(served, total/float64(served)); err != nil {
				return Figures{}, err
			}
		}
	}
	return Figures{
		Utilisation:   busy / (now * float64(q.Servers)),
		WaitedShare:   1 - float64(waits.none)/float64(q.Customers),
		MeanWaitS:     total / float64(q.Customers),
		MedianWaitS:   waits.quantile(0.5) * q.ServiceS,
		P95WaitS:      waits.quantile(0.95) * q.ServiceS,
		P99WaitS:      waits.quantile(0.99) * q.ServiceS,
		ExpectedWaitS: q.ExpectedWait(),
	}, nil
}

type times []float64

func (t times) Len() int           { return len(t) }
func (t times) Less(i, j int) bool { return t[i] < t[j] }
func (t times) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *times) Push(any)          { panic("the number of servers does not change") }
func (t *times) Pop() any          { panic("the number of servers does not change") }

// histogram counts values in buckets of 1 % width, so that a billion values cost no more memory than ten.
type histogram struct {
	none    int
	count   int
	buckets [buckets]int
}

const (
	buckets  = 4096
	smallest = 1e-9
)

var width = math.Log(1.01)

func (h *histogram) add(value float64) {
	h.count++
	if value <= 0 {
		h.none++
		return
	}
	at := int(math.Log(value/smallest) / width)
	h.buckets[min(max(at, 0), buckets-1)]++
}

// quantile is right to 1 %.
func (h *histogram) quantile(share float64) float64 {
	left := int(math.Ceil(share*float64(h.count))) - h.none
	if left <= 0 {
		return 0
	}
	for at, count := range h.buckets {
		if left -= count; left <= 0 {
			return smallest * math.Exp((float64(at)+0.5)*width)
		}
	}
	return math.Inf(1)
}
