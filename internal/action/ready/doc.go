// Package ready checks whether services are ready for work. While a service that a job of a
// queue needs is not ready, the workers of this process take no slots of that queue.
//
//   - A queue waits for all services of its jobs, because a worker cannot choose the job of
//     the slot that it gets, and a slot that cannot run costs an attempt. A job that must
//     not wait for the service of another job needs a queue of its own.
//   - A check is a GET without the headers of the job, which may be secret and meant for
//     another address. 2xx means ready. A redirect, any other answer, or no answer within
//     two seconds means not ready. A service is not ready before its first answer.
//   - One failed check stops the queue, and two good checks in a row resume it. A wrong stop
//     costs a second in which other nodes take the slots. A wrong resume costs attempts.
//   - Services are checked every second, ready ones too. Until the next check, slots may still
//     be taken for a service that has failed. Running slots are left alone.
package ready
