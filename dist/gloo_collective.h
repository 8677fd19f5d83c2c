#pragma once
#include <chrono>
#include <memory>

#include "dist/collective.h"
#include "dist/rank_place.h"
#include "dist/store.h"

namespace qtrain {

/// Collectives in the memory of the host, over TCP, by the library gloo. Waits until all ranks of the place are there,
/// for up to `timeout`, and as long for each collective; the store must outlive it. Errors of a collective are
/// exceptions of that library.
std::unique_ptr<Collective> connect_gloo(const RankPlace& place, Store& store, std::chrono::milliseconds timeout);

}  // namespace qtrain
