#pragma once
#include <cstddef>
#include <cstdint>

#include "core/error.h"

namespace qtrain {

/// The parts of libcurl's interface that the client uses. The library is loaded when it is first needed, so that the
/// program also starts where it is missing.
namespace curl {

struct Easy;    ///< a transfer
struct Header;  ///< a list of header lines

enum Option : int {
  kWriteData = 10001,
  kUrl = 10002,
  kRange = 10007,
  kReadData = 10009,
  kErrorBuffer = 10010,
  kLowSpeedLimit = 19,
  kLowSpeedTime = 20,
  kUserAgent = 10018,
  kHttpHeader = 10023,
  kHeaderData = 10029,
  kNoProgress = 43,
  kUpload = 46,
  kPost = 47,
  kNetrc = 51,
  kFollowLocation = 52,
  kProgressData = 10057,
  kCaInfo = 10065,
  kConnectTimeout = 78,
  kHttpGet = 80,
  kSeekData = 10168,
  kNoSignal = 99,
  kNetrcFile = 10118,
  kProtocols = 181,
  kWriteFunction = 20011,
  kReadFunction = 20012,
  kHeaderFunction = 20079,
  kSeekFunction = 20167,
  kProgressFunction = 20219,
  kUploadSize = 30115,
  kPostSize = 30120,
};
enum Info : int { kResponseCode = 0x200002, kPretransferTime = 0x300006 };
constexpr long kHttpAndHttps = 3, kNetrcOptional = 1;  // NOLINT(google-runtime-int): as in curl.h
constexpr std::size_t kErrorSize = 256;
constexpr std::size_t kAbortRead = 0x10000000;
constexpr int kSeekDone = 0, kSeekFailed = 1;

using Write = std::size_t (*)(char* bytes, std::size_t size, std::size_t count, void* data);
using Read = std::size_t (*)(char* bytes, std::size_t size, std::size_t count, void* data);
using Seek = int (*)(void* data, std::int64_t offset, int origin);
using Watch = int (*)(void* data, std::int64_t total, std::int64_t now, std::int64_t send_total, std::int64_t sent);

}  // namespace curl

/// Functions of libcurl.
struct CurlLibrary {
  curl::Easy* (*easy_init)() = nullptr;
  int (*easy_setopt)(curl::Easy*, int, ...) = nullptr;
  int (*easy_perform)(curl::Easy*) = nullptr;
  int (*easy_getinfo)(curl::Easy*, int, ...) = nullptr;
  void (*easy_reset)(curl::Easy*) = nullptr;
  void (*easy_cleanup)(curl::Easy*) = nullptr;
  const char* (*easy_strerror)(int) = nullptr;
  curl::Header* (*slist_append)(curl::Header*, const char*) = nullptr;
  void (*slist_free_all)(curl::Header*) = nullptr;
  const char* (*version)() = nullptr;
};

/// Loads the library at the first call. Throws ErrorKind::input, with what to install, if it is not there.
const CurlLibrary& curl_library();

}  // namespace qtrain
