// Compares our declarations of NCCL with the header of an installed version.
#include <gtest/gtest.h>
#include <nccl.h>

#include <type_traits>

#include "dist/nccl_api.h"

namespace qtrain {
namespace {

static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(nccl::success == static_cast<int>(ncclSuccess));
static_assert(nccl::invalid_argument == static_cast<int>(ncclInvalidArgument));
static_assert(nccl::invalid_usage == static_cast<int>(ncclInvalidUsage));
static_assert(nccl::remote_error == static_cast<int>(ncclRemoteError));
static_assert(nccl::in_progress == static_cast<int>(ncclInProgress));
static_assert(nccl::u8 == static_cast<int>(ncclUint8) && nccl::i64 == static_cast<int>(ncclInt64));
static_assert(nccl::f16 == static_cast<int>(ncclFloat16) && nccl::f32 == static_cast<int>(ncclFloat32));
static_assert(nccl::f64 == static_cast<int>(ncclFloat64) && nccl::bf16 == static_cast<int>(ncclBfloat16));
static_assert(nccl::sum == static_cast<int>(ncclSum) && nccl::max == static_cast<int>(ncclMax));
static_assert(nccl::version_code(2, 28, 9) == NCCL_VERSION(2, 28, 9));
static_assert(offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(nccl::Config, undefined) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(sizeof(nccl::Config) <= sizeof(ncclConfig_t));

/// Types as the calling convention passes them: pointers, integers, and the identifier by value.
template <class T>
struct Passed {
  using type = std::conditional_t<std::is_pointer_v<T>, void*, std::conditional_t<std::is_enum_v<T>, int, T>>;
};
template <>
struct Passed<ncclUniqueId> {
  using type = nccl::UniqueId;
};
template <class F>
struct Signature;
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using type = typename Passed<R>::type(typename Passed<A>::type...);
};
template <class Ours, class Theirs>
constexpr bool kSame = std::is_same_v<typename Signature<Ours>::type, typename Signature<Theirs>::type>;

using nccl::Functions;
static_assert(kSame<decltype(Functions::get_version), decltype(&ncclGetVersion)>);
static_assert(kSame<decltype(Functions::get_unique_id), decltype(&ncclGetUniqueId)>);
static_assert(kSame<decltype(Functions::comm_init_rank_config), decltype(&ncclCommInitRankConfig)>);
static_assert(kSame<decltype(Functions::comm_get_async_error), decltype(&ncclCommGetAsyncError)>);
static_assert(kSame<decltype(Functions::comm_finalize), decltype(&ncclCommFinalize)>);
static_assert(kSame<decltype(Functions::comm_destroy), decltype(&ncclCommDestroy)>);
static_assert(kSame<decltype(Functions::comm_abort), decltype(&ncclCommAbort)>);
static_assert(kSame<decltype(Functions::get_error_string), decltype(&ncclGetErrorString)>);
static_assert(kSame<decltype(Functions::get_last_error), decltype(&ncclGetLastError)>);
static_assert(kSame<decltype(Functions::all_reduce), decltype(&ncclAllReduce)>);
static_assert(kSame<decltype(Functions::reduce_scatter), decltype(&ncclReduceScatter)>);
static_assert(kSame<decltype(Functions::broadcast), decltype(&ncclBroadcast)>);
static_assert(kSame<decltype(Functions::all_gather), decltype(&ncclAllGather)>);
static_assert(kSame<decltype(Functions::send), decltype(&ncclSend)>);
static_assert(kSame<decltype(Functions::recv), decltype(&ncclRecv)>);
static_assert(kSame<decltype(Functions::group_start), decltype(&ncclGroupStart)>);
static_assert(kSame<decltype(Functions::group_end), decltype(&ncclGroupEnd)>);

TEST(NcclApi, IsThatOfTheInstalledHeader) {
  EXPECT_LE(nccl::version_code(2, 18, 0), NCCL_VERSION_CODE);  // the rest was checked by the compiler
}

}  // namespace
}  // namespace qtrain
