// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3xf32>, %pos: index) {
  %neg = lm.neg %x : tensor<2x3xf32>
  %abs = lm.abs %x : tensor<2x3xf32>
  %exp = lm.exp %x : tensor<2x3xf32>
  %log = lm.log %x : tensor<2x3xf32>
  %sqrt = lm.sqrt %x : tensor<2x3xf32>
  %rsqrt = lm.rsqrt %x : tensor<2x3xf32>
  %cos = lm.cos %x : tensor<2x3xf32>
  %sin = lm.sin %x : tensor<2x3xf32>
  %tanh = lm.tanh %x : tensor<2x3xf32>
  %sigmoid = lm.sigmoid %x : tensor<2x3xf32>
  %silu = lm.silu %x : tensor<2x3xf32>
  %floor = lm.floor %x : tensor<2x3xf32>
  %relu = lm.relu %x : tensor<2x3xf32>
  %erf = lm.erf %x : tensor<2x3xf32>
  %gelu = lm.gelu %x : tensor<2x3xf32>
  %gelu_tanh = lm.gelu_tanh %x : tensor<2x3xf32>
  %add = lm.add %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
  %sub = lm.sub %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
  %mul = lm.mul %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
  %div = lm.div %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
  %pow = lm.pow %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
  %maximum = lm.maximum %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
  %minimum = lm.minimum %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
  %add_scalar = lm.add_scalar %x, 2.0 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
  %sub_scalar = lm.sub_scalar %x, 2.0 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
  %rsub_scalar = lm.rsub_scalar %x, 2.0 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
  %mul_scalar = lm.mul_scalar %x, 2.0 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
  %div_scalar = lm.div_scalar %x, 2.0 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
  %pow_scalar = lm.pow_scalar %x, 2.0 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
  %cast = lm.cast %x : tensor<2x3xf32> -> tensor<2x3xbf16>
  func.return
}

// CHECK-LABEL: func.func @f(
// CHECK-NEXT: %neg = lm.neg %x : tensor<2x3xf32>
// CHECK-NEXT: %abs = lm.abs %x : tensor<2x3xf32>
// CHECK-NEXT: %exp = lm.exp %x : tensor<2x3xf32>
// CHECK-NEXT: %log = lm.log %x : tensor<2x3xf32>
// CHECK-NEXT: %sqrt = lm.sqrt %x : tensor<2x3xf32>
// CHECK-NEXT: %rsqrt = lm.rsqrt %x : tensor<2x3xf32>
// CHECK-NEXT: %cos = lm.cos %x : tensor<2x3xf32>
// CHECK-NEXT: %sin = lm.sin %x : tensor<2x3xf32>
// CHECK-NEXT: %tanh = lm.tanh %x : tensor<2x3xf32>
// CHECK-NEXT: %sigmoid = lm.sigmoid %x : tensor<2x3xf32>
// CHECK-NEXT: %silu = lm.silu %x : tensor<2x3xf32>
// CHECK-NEXT: %floor = lm.floor %x : tensor<2x3xf32>
// CHECK-NEXT: %relu = lm.relu %x : tensor<2x3xf32>
// CHECK-NEXT: %erf = lm.erf %x : tensor<2x3xf32>
// CHECK-NEXT: %gelu = lm.gelu %x : tensor<2x3xf32>
// CHECK-NEXT: %gelu_tanh = lm.gelu_tanh %x : tensor<2x3xf32>
// CHECK-NEXT: %add = lm.add %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %sub = lm.sub %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %mul = lm.mul %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %div = lm.div %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %pow = lm.pow %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %maximum = lm.maximum %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %minimum = lm.minimum %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %add_scalar = lm.add_scalar %x, 2.000000e+00 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %sub_scalar = lm.sub_scalar %x, 2.000000e+00 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %rsub_scalar = lm.rsub_scalar %x, 2.000000e+00 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %mul_scalar = lm.mul_scalar %x, 2.000000e+00 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %div_scalar = lm.div_scalar %x, 2.000000e+00 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %pow_scalar = lm.pow_scalar %x, 2.000000e+00 : f64 : tensor<2x3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %cast = lm.cast %x : tensor<2x3xf32> -> tensor<2x3xbf16>

// GENERIC: %neg = "lm.neg"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %abs = "lm.abs"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %exp = "lm.exp"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %log = "lm.log"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %sqrt = "lm.sqrt"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %rsqrt = "lm.rsqrt"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %cos = "lm.cos"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %sin = "lm.sin"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %tanh = "lm.tanh"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %sigmoid = "lm.sigmoid"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %silu = "lm.silu"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %floor = "lm.floor"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %relu = "lm.relu"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %erf = "lm.erf"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %gelu = "lm.gelu"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %gelu_tanh = "lm.gelu_tanh"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %add = "lm.add"(%x, %y) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %sub = "lm.sub"(%x, %y) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %mul = "lm.mul"(%x, %y) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %div = "lm.div"(%x, %y) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %pow = "lm.pow"(%x, %y) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %maximum = "lm.maximum"(%x, %y) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %minimum = "lm.minimum"(%x, %y) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %add_scalar = "lm.add_scalar"(%x) <{value = 2.000000e+00 : f64}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %sub_scalar = "lm.sub_scalar"(%x) <{value = 2.000000e+00 : f64}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %rsub_scalar = "lm.rsub_scalar"(%x) <{value = 2.000000e+00 : f64}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %mul_scalar = "lm.mul_scalar"(%x) <{value = 2.000000e+00 : f64}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %div_scalar = "lm.div_scalar"(%x) <{value = 2.000000e+00 : f64}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %pow_scalar = "lm.pow_scalar"(%x) <{value = 2.000000e+00 : f64}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %cast = "lm.cast"(%x) : (tensor<2x3xf32>) -> tensor<2x3xbf16>
