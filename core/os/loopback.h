#pragma once
#include <string>

namespace qtrain {

/// The host as sockets understand it: without brackets, and an IPv4 address that is mapped to IPv6 as IPv4.
std::string plain_host(const std::string& host);

/// Whether a host is "localhost" or a numeric loopback address.
bool is_loopback(const std::string& host);

}  // namespace qtrain
