#include "core/os/loopback.h"

#include <arpa/inet.h>
#include <strings.h>

#include <cstddef>

namespace qtrain {

std::string plain_host(const std::string& host) {
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  std::string address = brackets ? host.substr(1, host.size() - 2) : host;
  in6_addr a{};
  char text[INET_ADDRSTRLEN] = "";
  constexpr std::size_t kPrefix = sizeof(in6_addr) - sizeof(in_addr);
  const bool mapped = ::inet_pton(AF_INET6, address.c_str(), &a) == 1 && IN6_IS_ADDR_V4MAPPED(&a) &&
                      ::inet_ntop(AF_INET, a.s6_addr + kPrefix, text, sizeof text) != nullptr;
  return mapped ? text : address;
}

bool is_loopback(const std::string& host) {
  constexpr int kLoopbackNet = 127;
  const std::string plain = plain_host(host);
  if (::strcasecmp(plain.c_str(), "localhost") == 0) return true;
  in_addr four{};
  if (::inet_pton(AF_INET, plain.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == kLoopbackNet;
  in6_addr six{};
  return ::inet_pton(AF_INET6, plain.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

}  // namespace qtrain
