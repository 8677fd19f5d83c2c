#pragma once
#include <string>

#include "dist/nccl_api.h"

namespace qtrain {

/// The NCCL of this machine: libnccl.so.2 of the loader's folders (LD_LIBRARY_PATH) or of the CUDA toolkit. The program
/// starts and trains on one GPU without it.
class NcclLibrary {
 public:
  /// Throws ErrorKind::usage, with the places that were searched, unless a library that is new enough loads.
  NcclLibrary();

  const nccl::Functions* operator->() const { return &functions_; }
  int version() const { return version_; }

 private:
  nccl::Functions functions_{};
  int version_ = 0;
};

/// The description for `qtrain doctor`.
struct NcclState {
  std::string version, file;  ///< "2.28.9"; as it was found
  std::string problem = {};   ///< why it cannot be used; empty if it can
};
NcclState nccl_state();

}  // namespace qtrain
