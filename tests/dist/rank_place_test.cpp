#include "dist/rank_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

/// The place that is found in an environment with these variables.
class RankPlaces : public ::testing::Test {
 protected:
  ~RankPlaces() override { unset(); }
  std::optional<RankPlace> place_in(const Variables& variables) {
    unset();
    for (const auto& [name, value] : variables) {
      ::setenv(name.c_str(), value.c_str(), 1);
      set_.push_back(name);
    }
    return rank_place();
  }
  std::string refusal(const Variables& variables) {
    return test::error_if_any(ErrorKind::usage, [&] { place_in(variables); });
  }

 private:
  void unset() {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
    set_.clear();
  }
  std::vector<std::string> set_;
};

// The variables that torchrun 2.9 sets for the last of 2 x 4 processes.
Variables torchrun() {
  return {{"RANK", "7"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "3"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "10.0.0.1"},
          {"MASTER_PORT", "29400"}};
}

TEST_F(RankPlaces, AProcessByItselfHasNone) {
  EXPECT_FALSE(place_in({}));
  for (const Variables& left_behind :
       {Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {{"RANK", "3"}, {"WORLD_SIZE", "foo"}}}) {
    EXPECT_FALSE(place_in(left_behind));
    EXPECT_FALSE(node_place());
  }
  EXPECT_FALSE(
      place_in({{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "4"}}));  // a shell in an allocation
}

TEST_F(RankPlaces, OfTorchrun) {
  const auto p = place_in(torchrun());
  ASSERT_TRUE(p);
  EXPECT_EQ(p->launcher, "torchrun");
  EXPECT_EQ(p->rank, 7);
  EXPECT_EQ(p->size, 8);
  EXPECT_EQ(p->local_rank, 3);
  EXPECT_EQ(p->local_size, 4);
  EXPECT_EQ(p->store.text(), "10.0.0.1:29400");
  EXPECT_FALSE(p->serves_store);
}

TEST_F(RankPlaces, RankZeroServes) {
  Variables v = torchrun();
  v["RANK"] = "0";
  EXPECT_TRUE(place_in(v)->serves_store);
  v["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // torchrun's own store is at MASTER_PORT
  EXPECT_EQ(place_in(v)->store.port, 29401);
}

TEST_F(RankPlaces, OfSlurmAndOpenMpi) {
  const auto slurm = place_in({{"SLURM_PROCID", "5"},
                               {"SLURM_STEP_NUM_TASKS", "6"},
                               {"SLURM_LOCALID", "1"},
                               {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                               {"MASTER_ADDR", "node-1"},
                               {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->launcher, "Slurm");
  EXPECT_EQ(slurm->local_size, 2);
  EXPECT_EQ(slurm->rank, 5);
  const auto mpi = place_in({{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(mpi);
  EXPECT_EQ(mpi->launcher, "Open MPI");
  EXPECT_EQ(mpi->local_rank, 1);
}

// Each pod of a PyTorchJob has these variables; its ranks are started inside it.
TEST_F(RankPlaces, AMachineOfKubernetesIsNoRank) {
  EXPECT_FALSE(
      place_in({{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}}));
  const auto node = node_place();
  ASSERT_TRUE(node);
  EXPECT_EQ(node->node, 1);
  EXPECT_EQ(node->nodes, 3);
  EXPECT_EQ(node->meeting.text(), "job-master-0:23456");
  place_in(torchrun());
  EXPECT_FALSE(node_place());
}

TEST_F(RankPlaces, WhatIsMissingOrWrongIsNamed) {
  Variables v = torchrun();
  v.erase("MASTER_ADDR");
  EXPECT_THAT(refusal(v), HasSubstr("MASTER_ADDR and MASTER_PORT must give the address of rank 0"));
  v = torchrun();
  v["RANK"] = "seven";
  EXPECT_THAT(refusal(v), HasSubstr("RANK is \"seven\", not a number"));
  v["RANK"] = "8";
  EXPECT_THAT(refusal(v), HasSubstr("RANK is 8, but the 8 ranks are numbered from 0"));
  v["RANK"] = "-1";
  EXPECT_THAT(refusal(v), HasSubstr("not a number"));
  v = torchrun();
  v["MASTER_PORT"] = "65536";
  EXPECT_THAT(refusal(v), HasSubstr("MASTER_PORT is 65536, but the highest port is 65535"));
  v = torchrun();
  v["WORLD_SIZE"] = "2147483647";
  EXPECT_THAT(refusal(v), HasSubstr("WORLD_SIZE is 2147483647, but a run can have at most 65536 ranks"));
  v = torchrun();
  v["LOCAL_WORLD_SIZE"] = "0";
  EXPECT_THAT(refusal(v), HasSubstr("LOCAL_WORLD_SIZE is 0, but it must include this rank"));
  for (const char* list : {"7,0", "7(x2)"}) {
    v = torchrun();
    v["RANK"] = list;
    EXPECT_THAT(refusal(v), HasSubstr("not a number")) << "only Slurm's number of ranks on a machine has this form";
  }
}

TEST_F(RankPlaces, ThatOfOurOwnLauncherComesThrough) {
  Variables v = torchrun();  // qtrain's launcher was started by another launcher
  for (const std::string& entry : place_variables(
           {.rank = 1, .size = 3, .local_rank = 1, .local_size = 3, .store = {.host = "::1", .port = 5}, .attempt = 2}))
    v[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
  const auto p = place_in(v);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->launcher, "qtrain");
  EXPECT_EQ(p->rank, 1);
  EXPECT_EQ(p->size, 3);
  EXPECT_EQ(p->store.host, "::1");
  EXPECT_EQ(p->attempt, 2);
  EXPECT_FALSE(p->serves_store);
}

}  // namespace
}  // namespace qtrain
