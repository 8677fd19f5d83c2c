#include "core/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "core/error.h"

namespace qtrain {

Mac hmac_sha256(std::string_view key, std::string_view text) {
  Mac mac{};
  unsigned length = 0;
  const auto* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), reinterpret_cast<unsigned char*>(mac.data()), &length);
  check(made != nullptr && length == mac.size(), "libcrypto failed to compute an HMAC");
  return mac;
}

bool same_mac(std::span<const std::byte, 32> a, std::span<const std::byte, 32> b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_with_randomness(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
    check(n > 0 || errno == EINTR, "the system returned no random numbers");
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

}  // namespace qtrain
