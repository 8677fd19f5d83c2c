#pragma once
#include <memory>
#include <vector>

#include "emulator/nccl/communicator.h"
#include "emulator/nccl/exchange.h"

namespace qtrain::stand_in {

/// A call, or the sends and receives of a group, as work for a stream.
class Operation {
 public:
  Operation(std::shared_ptr<Communicator> ranks, std::vector<Call> calls, std::int64_t number);
  emulation::Work work() const;

 private:
  void run() const;
  void exchange() const;
  void run_collective(const Call& call) const;
  void greet(Exchange& exchange, const Descriptor& what) const;

  std::shared_ptr<Communicator> ranks_;
  std::vector<Call> calls_;
  std::int64_t number_;
};

}  // namespace qtrain::stand_in
