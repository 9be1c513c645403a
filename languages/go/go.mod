module weir.example/order

go 1.21
