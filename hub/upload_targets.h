#pragma once
#include <span>
#include <vector>

#include "core/formats/json.h"
#include "hub/upload_api.h"

namespace qtrain {

inline constexpr const char* kLfsType = "application/vnd.git-lfs+json";

/// The addresses that the hub gives for large files, in the order of `objects`. Throws ErrorKind::input for an error in
/// the answer, and for addresses that are not safe: other than http and https, or http if the hub has https.
std::vector<LargeTarget> read_targets(const Json& answer, std::span<const LargeObject> objects,
                                      const UploadPlace& place);

/// Whether bytes may be sent to an address that the hub has given.
bool is_safe_target(const std::string& url, const UploadPlace& place);

}  // namespace qtrain
