#include "core/os/loopback.h"

#include <gtest/gtest.h>

namespace qtrain {
namespace {

TEST(Loopback, IsThisMachineOnly) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LocalHost", "::ffff:127.0.0.1",
                           "[::ffff:127.0.0.1]", "::ffff:7f00:1"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "192.168.0.1", "127.0.0.1.example.org", "127.example.org",
                           "localhost.example.org", "", "127.1", "2130706433", "0x7f.0.0.1", "::ffff:10.0.0.1"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(PlainHost, IsWhatSocketsUnderstand) {
  for (const auto& [host, plain] : {std::pair("[fd00::1]", "fd00::1"),
                                    {"::ffff:10.0.0.1", "10.0.0.1"},
                                    {"[::ffff:10.0.0.1]", "10.0.0.1"},
                                    {"name", "name"},
                                    {"", ""}})
    EXPECT_EQ(plain_host(host), plain);
}

}  // namespace
}  // namespace qtrain
