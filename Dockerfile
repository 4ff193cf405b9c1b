# syntax=docker/dockerfile:1
# The image: the program, built for the platform that is asked for on the one that builds, and the certificates it trusts.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=0.1.0 -t registry.example.com/reveille:0.1.0 --push .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd/ cmd/
COPY dispatcher/ dispatcher/
COPY fsm/ fsm/
COPY httpapi/ httpapi/
COPY redisstore/ redisstore/
COPY tailer/ tailer/
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags="-s -w -X main.version=$VERSION" -o /out/reveille ./cmd/reveille

FROM scratch
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="reveille" \
      org.opencontainers.image.description="Wakes workers by signed webhooks when the streams of a Durable Streams server get events" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/reveille /reveille
# By number, so that a cluster can see that it is not root.
USER 65532:65532
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/reveille"]
