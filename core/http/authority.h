#pragma once
#include <string>
#include <string_view>

#include "core/http/message.h"

namespace qtrain::http {

/// The host in "host", "host:80" and "[::1]:80". Throws Problem 400 for anything else.
std::string host_of(std::string_view authority);

/// Whether a server that listens at `address` answers to `host`: to loopback and to the address, and, if other machines
/// can reach it, to this machine's name, alone or in its own domain, and to all numeric addresses.
bool answers_to(const std::string& host, const std::string& address);

/// Refuses requests from web pages of other origins, for a server without authentication: a `Host` that resolves to
/// this machine without being its name (DNS rebinding), an `Origin` that is not the server itself, or a
/// `Sec-Fetch-Site` that names another site, unless the user follows a link. Throws Problem 403, or 400 for an invalid
/// host.
void require_own_origin(const Request& request, const std::string& address);

}  // namespace qtrain::http
