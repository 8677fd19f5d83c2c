#pragma once
#include <gloo/context.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/os/descriptor.h"

namespace qtrain {

/// gloo over connections that were made for it: its own ports take whoever comes first for a rank.
class GlooContext : public gloo::Context {
 public:
  struct Options {
    int rank = 0;
    std::string address;                  ///< of this machine
    std::vector<Descriptor> peers;        ///< one for each rank, the own one empty
    std::chrono::milliseconds timeout{};  ///< of each collective
  };
  explicit GlooContext(Options options);
  ~GlooContext() override;
  /// Lets what is under way end with an error, here and on the other ranks; from any thread. gloo itself can close its
  /// connections, and then whoever waits here is not told.
  void cut();

 private:
  class Pair;
  class Pairs;
};

}  // namespace qtrain
