#include "core/http/authority.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "core/os/loopback.h"

namespace qtrain::http {
namespace {

bool is_number(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  return ::inet_pton(AF_INET, host.c_str(), &four) == 1 || ::inet_pton(AF_INET6, host.c_str(), &six) == 1;
}

std::string name_of_this_machine() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? lower_case(name.data()) : "";
}

std::string looked_up_name() {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_CANONNAME;
  if (::getaddrinfo(name_of_this_machine().c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  return lower_case(found->ai_canonname ? found->ai_canonname : "");
}

// The canonical name from the resolver, looked up once; empty while that takes long: where no name server answers,
// it takes many seconds, for which neither a client nor the end of the program must wait.
std::string full_name_of_this_machine() try {
  constexpr std::chrono::milliseconds kPatience{200};
  static const std::shared_future<std::string> name = [] {
    std::promise<std::string> found;
    std::shared_future<std::string> result = found.get_future();
    std::thread([found = std::move(found)]() mutable {
      try {
        found.set_value(looked_up_name());
      } catch (const std::exception&) {  // whoever asks for it gets an error
      }
    }).detach();
    return result;
  }();
  return name.wait_for(kPatience) == std::future_status::ready ? name.get() : std::string();
} catch (const std::system_error&) {  // no thread is left; the next request tries again
  return {};
}

// Accepts the name alone or in this machine's own domain: anybody can make the name in another domain resolve to this
// machine.
bool is_name_of_this_machine(const std::string& host) {
  const std::string name = name_of_this_machine(), asked = lower_case(host);
  const std::string first = name.substr(0, name.find('.'));
  if (first.empty() || asked.substr(0, asked.find('.')) != first) return false;
  return asked == first || asked == name || asked == first + ".local" || asked == full_name_of_this_machine();
}

[[noreturn]] void refuse_authority() {
  throw Problem(400, "the Host header is not a name or an address with an optional port");
}

void require_port(std::string_view port) {
  const bool good = port.size() <= 5 && std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
  if (!good) refuse_authority();
}

bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_';
}

// The address without the zone of a link-local one, which some clients send: "%eth0", or "%25eth0" as in URLs.
std::string_view without_zone(std::string_view address) {
  const std::size_t at = address.find('%');
  if (at == std::string_view::npos) return address;
  const std::string_view zone = address.substr(at + 1);
  if (zone.empty() || zone == "25") refuse_authority();
  const std::string_view name = zone.starts_with("25") ? zone.substr(2) : zone;
  if (!std::ranges::all_of(name, is_name_character)) refuse_authority();
  return address.substr(0, at);
}

// Browsers say whose page made a request, also where they send no Origin: for images, scripts, and frames. A link that
// leads here is allowed, because the page with the link cannot read the answer.
bool is_from_another_page(const Request& request) {
  const auto names_another = [](const Header& h) {
    return h.name == "sec-fetch-site" && h.value != "same-origin" && h.value != "none";
  };
  const bool follows_link = (request.method == "GET" || request.method == "HEAD") &&
                            request.header("sec-fetch-mode") == "navigate" &&
                            request.header("sec-fetch-dest") == "document";
  return std::ranges::any_of(request.headers, names_another) && !follows_link;
}

}  // namespace

std::string host_of(std::string_view authority) {
  std::size_t end = authority.find(':');
  std::string host(authority.substr(0, end));
  if (authority.starts_with("[")) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) refuse_authority();
    host = without_zone(authority.substr(1, close - 1));
    end = close + 1 < authority.size() ? close + 1 : std::string_view::npos;
    in6_addr six{};
    if (::inet_pton(AF_INET6, host.c_str(), &six) != 1) refuse_authority();
  } else if (host.empty() || !std::ranges::all_of(host, is_name_character)) {
    refuse_authority();
  }
  if (end == std::string_view::npos) return host;
  if (authority[end] != ':') refuse_authority();
  require_port(authority.substr(end + 1));
  return host;
}

bool answers_to(const std::string& host, const std::string& address) {
  if (is_loopback(host) || equal_without_case(host, address)) return true;
  return !is_loopback(address) && (is_number(host) || is_name_of_this_machine(host));
}

void require_own_origin(const Request& request, const std::string& address) {
  const std::string_view authority = request.header("host"), origin = request.header("origin");
  if (request.has("host")) {
    const std::string host = host_of(authority);
    if (!answers_to(host, address))
      throw Problem(403, "this server does not answer to the name " + host + ": use " + address +
                             (is_loopback(address) ? "" : " or the name of this machine"));
  }
  const bool other_origin = request.has("origin") && !equal_without_case(origin, "http://" + std::string(authority));
  if (other_origin || is_from_another_page(request))
    throw Problem(403, "requests from pages of other origins are not allowed");
}

}  // namespace qtrain::http
