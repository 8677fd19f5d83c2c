#pragma once
#include <chrono>
#include <memory>

#include "dist/collective.h"
#include "dist/rank_place.h"
#include "dist/store.h"

namespace qtrain {

/// Collectives in host memory over TCP, with the library gloo. Waits for all ranks, and later in each collective, for
/// up to `timeout`; the store must outlive it. Collectives throw the library's exceptions.
std::unique_ptr<Collective> connect_gloo(const RankPlace& place, Store& store, std::chrono::milliseconds timeout);

}  // namespace qtrain
