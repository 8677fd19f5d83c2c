#pragma once
#include <string>

#include "dist/nccl_api.h"

namespace qtrain {

/// The NCCL library of this machine, libnccl.so.2, found as open_shared_library does. The program starts and trains on
/// one GPU without it.
class NcclLibrary {
 public:
  /// Throws ErrorKind::usage if no library that is new enough can be loaded.
  NcclLibrary();

  const nccl::Functions* operator->() const { return &functions_; }
  int version() const { return version_; }

 private:
  nccl::Functions functions_{};
  int version_ = 0;
};

/// The description for `qtrain doctor`.
struct NcclState {
  std::string version, file;  ///< "2.28.9"; the path that was loaded
  std::string problem = {};   ///< why it cannot be used; empty if it can
};
NcclState nccl_state();

}  // namespace qtrain
