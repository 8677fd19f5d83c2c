#pragma once
#include <string>

namespace qtrain {

/// The host as sockets understand it: without brackets, and ::ffff:1.2.3.4 as 1.2.3.4.
std::string plain_host(const std::string& host);

/// Whether a host is "localhost" or a numeric loopback address.
bool is_loopback(const std::string& host);

}  // namespace qtrain
