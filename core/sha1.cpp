#include "core/sha1.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "core/error.h"

namespace qtrain {
namespace {

void succeed(int status) {
  check(status == 1, "libcrypto failed to compute a SHA-1");
}

}  // namespace

void Sha1::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha1::Sha1() : context_(EVP_MD_CTX_new()) {
  check(context_ != nullptr, "libcrypto failed to allocate memory");
  succeed(EVP_DigestInit_ex(context_.get(), EVP_sha1(), nullptr));
}

void Sha1::add(std::span<const std::byte> bytes) {
  succeed(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string Sha1::hex() {
  std::array<unsigned char, 20> digest{};
  succeed(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr));
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace qtrain
