// The declarations of libcurl's interface against those of its header.
#include <curl/curl.h>
#include <gtest/gtest.h>

#include <utility>

#include "hub/curl_library.h"

namespace qtrain {
namespace {

TEST(CurlLibrary, IsDeclaredAsInItsHeader) {
  constexpr std::pair<int, int> kOptions[] = {
      {curl::kWriteData, CURLOPT_WRITEDATA},
      {curl::kUrl, CURLOPT_URL},
      {curl::kRange, CURLOPT_RANGE},
      {curl::kErrorBuffer, CURLOPT_ERRORBUFFER},
      {curl::kLowSpeedLimit, CURLOPT_LOW_SPEED_LIMIT},
      {curl::kLowSpeedTime, CURLOPT_LOW_SPEED_TIME},
      {curl::kUserAgent, CURLOPT_USERAGENT},
      {curl::kHttpHeader, CURLOPT_HTTPHEADER},
      {curl::kHeaderData, CURLOPT_HEADERDATA},
      {curl::kNoProgress, CURLOPT_NOPROGRESS},
      {curl::kNetrc, CURLOPT_NETRC},
      {curl::kFollowLocation, CURLOPT_FOLLOWLOCATION},
      {curl::kProgressData, CURLOPT_XFERINFODATA},
      {curl::kCaInfo, CURLOPT_CAINFO},
      {curl::kConnectTimeout, CURLOPT_CONNECTTIMEOUT},
      {curl::kHttpGet, CURLOPT_HTTPGET},
      {curl::kNoSignal, CURLOPT_NOSIGNAL},
      {curl::kNetrcFile, CURLOPT_NETRC_FILE},
      {curl::kWriteFunction, CURLOPT_WRITEFUNCTION},
      {curl::kHeaderFunction, CURLOPT_HEADERFUNCTION},
      {curl::kProgressFunction, CURLOPT_XFERINFOFUNCTION},
  };
  for (const auto& [ours, theirs] : kOptions) EXPECT_EQ(ours, theirs);
  constexpr int kProtocolsOfOldVersions = 181;  // CURLOPT_PROTOCOLS, which newer headers call deprecated
  EXPECT_EQ(curl::kProtocols, kProtocolsOfOldVersions);
  EXPECT_EQ(curl::kResponseCode, CURLINFO_RESPONSE_CODE);
  EXPECT_EQ(curl::kPretransferTime, CURLINFO_PRETRANSFER_TIME);
  EXPECT_EQ(curl::kHttpAndHttps, CURLPROTO_HTTP | CURLPROTO_HTTPS);
  EXPECT_EQ(curl::kNetrcOptional, CURL_NETRC_OPTIONAL);
  EXPECT_EQ(curl::kErrorSize, CURL_ERROR_SIZE);
  EXPECT_EQ(sizeof(curl_off_t), sizeof(std::int64_t));
  EXPECT_NE(curl_library().version(), nullptr);
}

}  // namespace
}  // namespace qtrain
