// Which tensors `rda` takes one by one.
#include "core/runtime/tensors/radial_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace collab {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<TensorInfo> kModel{{"transformer.wte.weight", "float32", {10, 2}, TensorKind::kAveraged, {}},
                                     {"h.0.attn.weight", "float32", {4, 4}, TensorKind::kAveraged, {}},
                                     {"h.0.attn.mask", "float32", {64}, TensorKind::kLeftOut, {}},
                                     {"h.0.ln.bias", "float32", {3}, TensorKind::kAveraged, {}},
                                     {"none", "float32", {0}, TensorKind::kAveraged, {}},
                                     {"running_mean", "float32", {5}, TensorKind::kAveraged, {}}};

TEST(RadialTensors, AreTrainedOnesThatAreNoEmbeddings) {
  EXPECT_THAT(radial_tensors(kModel, 44, 39), ElementsAre(ElementRange{20, 36}, ElementRange{36, 39}));
  EXPECT_THAT(radial_tensors(kModel, 44, UINT64_MAX),
              ElementsAre(ElementRange{20, 36}, ElementRange{36, 39}, ElementRange{39, 44}));
  EXPECT_THAT(radial_tensors(kModel, 30, UINT64_MAX), ElementsAre(ElementRange{20, 30})) << "the vector ends first";
  EXPECT_THAT(radial_tensors({}, 44, 39), IsEmpty());
}

TEST(RadialTensors, AnEmbeddingIsKnownByItsName) {
  for (const char* name : {"wte.weight", "transformer.wpe.weight", "model.embed_tokens.weight", "tok_emb.weight",
                           "bert.embeddings.word_embeddings.weight", "tokenEmbedding.weight", "emb"}) {
    EXPECT_TRUE(is_embedding(name)) << name;
  }
  for (const char* name :
       {"lm_head.weight", "h.0.mlp.weight", "ensemble.0.weight", "member.weight", "wtex.weight", ""}) {
    EXPECT_FALSE(is_embedding(name)) << name;
  }
}

}  // namespace
}  // namespace collab
