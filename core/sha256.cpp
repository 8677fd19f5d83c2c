#include "core/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "core/error.h"
#include "core/os/file.h"

namespace qtrain {
namespace {

void verify(int status) {
  check(status == 1, "libcrypto failed to compute a SHA-256");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Context Sha256::made() {
  Context context(EVP_MD_CTX_new());
  check(context != nullptr, "libcrypto failed to allocate memory");
  return context;
}

Sha256::Sha256() : context_(made()) {
  verify(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void Sha256::add(std::span<const std::byte> bytes) {
  verify(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::hex() const {
  const Context last = made();
  verify(EVP_MD_CTX_copy_ex(last.get(), context_.get()));
  std::array<unsigned char, 32> digest{};
  verify(EVP_DigestFinal_ex(last.get(), digest.data(), nullptr));
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::string sha256_of(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

std::string sha256_of_file(const std::filesystem::path& file, const std::function<void()>& between) {
  Sha256 hash;
  for_each_chunk(file, [&](std::span<const std::byte> chunk) {
    if (between) between();
    hash.add(chunk);
  });
  return hash.hex();
}

}  // namespace qtrain
