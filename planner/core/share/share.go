// Package share computes who is to have how much of a cluster: by deadlines
// (progressive filling), by the least that anybody has where GPUs differ (a
// linear program), and by bids. It knows no jobs, only numbers; package queue
// makes an order of what it says.
package share
