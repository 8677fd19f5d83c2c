#pragma once
#include <string>
#include <string_view>

#include "core/http/message.h"

namespace qtrain::http {

/// What stands before the port of "host", "host:80" and "[::1]:80". Problem (400) where it is none of these.
std::string host_of(std::string_view authority);

/// Whether a host is this machine by a name that leads nowhere else.
bool is_loopback(const std::string& host);

/// Whether a server that listens at `address` answers to that host: to the names of loopback and to the address, and
/// where others can reach it, to this machine's name, alone or in its own domain, and to all addresses in numbers.
bool answers_to(const std::string& host, const std::string& address);

/// Refuses what a web page of another origin asks a server that has no secret: a name in `Host` that leads here without
/// being this machine's (DNS rebinding), and an `Origin` that is not the server itself. Problem: 403, and 400 for a
/// host that is none.
void require_own_origin(const Request& request, const std::string& address);

}  // namespace qtrain::http
