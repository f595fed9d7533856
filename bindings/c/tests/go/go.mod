module tamis.test/go

go 1.21
