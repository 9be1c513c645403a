//! The order-preserving block layer: requests, elevators, epoch scheduling, dispatch.
