"""A local stand-in for the part of Yahoo Finance that yfinance's price history asks.

It answers, over plain HTTP, or HTTPS as a CONNECT proxy (`tls=True`, needs openssl):
the chart JSON, the crumb, the cookie pages; faults can be set for each symbol.
"""

import datetime as dt
import json
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

import numpy as np

ZONE = ZoneInfo("America/New_York")
PROBE_FAULTS = ("tz404", "delisted", "ratelimit", "down")
CHART = "/v8/finance/chart/"


class StandIn:
    """Serves `{symbol: frame}`; a frame has the columns of our raw prices, without `tic`.

    Faults: ratelimit, crumb429, empty, delisted, tz404, truncated, cut, html, down, error500, slow,
    nullrow, lastdup, hole, badsplit, negzero, unit100, drift.
    """

    def __init__(self, data, tls=False, slow_seconds=3.0):
        self.data, self.slow_seconds, self.log, self.drifts = dict(data), slow_seconds, [], 0
        self._faults, self._lock = {}, threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.ca = self.tls = None
        if tls:
            self.ca, certificate, key = make_certificates()
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate, key)

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def fail(self, symbol, mode, times=None):
        """Answer the next `times` chart requests of a symbol ("*": any) with a fault."""
        self._faults[symbol] = [mode, times]

    def heal(self):
        """Answer everything again, and forget the log."""
        self._faults.clear()
        self.log.clear()

    def charts(self, symbol=None):
        """The chart requests so far, without the time-zone probes."""
        return [
            path
            for path in self.log
            if path.startswith(CHART + (symbol or "")) and "events=" in path
        ]

    def session(self):
        """A curl_cffi session whose requests to yahoo.com arrive here."""
        from curl_cffi import requests

        base = urlsplit(self.url)

        class Rerouted(requests.Session):
            def request(self, method, url, *args, **kwargs):
                parts = urlsplit(url)
                if (parts.hostname or "").endswith("yahoo.com"):
                    url = urlunsplit((base.scheme, base.netloc, parts.path or "/", parts.query, ""))
                return super().request(method, url, *args, **kwargs)

        return Rerouted(impersonate="chrome")

    def environment(self):
        """What makes another process's yfinance come here; needs `tls=True`."""
        names = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
        proxies = {"HTTPS_PROXY": self.url, "https_proxy": self.url}
        return proxies | dict.fromkeys(names, str(self.ca)) | {"NO_PROXY": "127.0.0.1"}

    def fault(self, symbol, is_probe):
        """Take the fault that the next request of a symbol meets."""
        with self._lock:
            found = self._faults.get(symbol) or self._faults.get("*")
            if found is None or found[1] == 0 or (is_probe and found[0] not in PROBE_FAULTS):
                return "ok"
            if found[1] is not None:
                found[1] -= 1
            return found[0]

    def has(self, mode):
        """Whether a fault of this kind is set for any symbol."""
        return mode in [fault[0] for fault in self._faults.values()]

    def chart(self, symbol, query, mode):
        """The status and the JSON of one chart request."""
        frame = self.data.get(symbol)
        if frame is None or mode in ("delisted", "tz404"):
            return 404, refusal("Not Found", "No data found, symbol may be delisted")
        first, last = span(frame, query)
        rows = [row for row in as_rows(frame) if first <= row["time"] < last]
        interval = query.get("interval", ["1d"])[0]
        meta = about(symbol, rows, interval)
        if mode == "empty" or not rows:
            empty = {"meta": meta, "indicators": {"quote": [{}], "adjclose": [{}]}}
            return 200, {"chart": {"result": [empty], "error": None}}
        rows = self.spoil(rows, mode)
        quote = {c: [row[c] for row in rows] for c in ("open", "high", "low", "close", "volume")}
        result = {
            "meta": meta,
            "timestamp": [row["time"] for row in rows],
            "indicators": {
                "quote": [quote],
                "adjclose": [{"adjclose": [row["adj_close"] for row in rows]}],
            },
            "events": events(rows),
        }
        if interval != "1d":
            del result["indicators"]["adjclose"]
        return 200, {"chart": {"result": [result], "error": None}}

    def spoil(self, rows, mode):
        """Rows as a source gives them on a bad day."""
        prices = ("open", "high", "low", "close", "adj_close")
        if mode == "nullrow":
            rows[-1].update(dict.fromkeys(prices))
        elif mode == "lastdup":
            rows.append(rows[-1] | {"time": rows[-1]["time"] + 23_400, "volume": 1})
        elif mode == "hole":
            rows = [row for i, row in enumerate(rows) if i % 7 != 2]
        elif mode == "badsplit":
            for row in rows[: len(rows) // 2]:
                row.update({c: 7 * row[c] for c in prices})
        elif mode == "negzero":
            rows[1].update({"close": 0.0, "adj_close": 0.0})
            rows[2]["low"] = -1.0
        elif mode == "unit100":
            rows[2].update({c: 100 * rows[2][c] for c in prices})
        elif mode == "drift":
            self.drifts += 1
            for row in rows[:-1]:
                row["adj_close"] *= 1 - 0.001 * self.drifts
        return rows


def as_rows(frame):
    """The frame's rows as Yahoo has them: seconds of the open in New York, plain numbers."""
    rows = []
    for row in frame.to_dict("records"):
        moment = row["date"].to_pydatetime()
        if moment.time() == dt.time():
            moment = moment.replace(hour=9, minute=30, tzinfo=ZONE)
        else:
            moment = moment.replace(tzinfo=dt.UTC)
        numbers = {
            k: None if v is None or np.isnan(v) else float(v) for k, v in row.items() if k != "date"
        }
        numbers.setdefault("adj_close", numbers["close"])
        numbers["volume"] = None if numbers["volume"] is None else int(numbers["volume"])
        rows.append({"time": int(moment.timestamp())} | numbers)
    return rows


def span(frame, query):
    if "period1" in query:
        return int(query["period1"][0]), int(query.get("period2", [time.time()])[0])
    last = as_rows(frame.tail(1))[0]["time"]
    return last - 86_400, last + 1


def events(rows):
    dividends = {
        str(r["time"]): {"amount": r["dividend"], "date": r["time"]}
        for r in rows
        if r.get("dividend")
    }
    splits = {
        str(r["time"]): {"date": r["time"], "numerator": r["split"], "denominator": 1.0}
        for r in rows
        if r.get("split")
    }
    return {k: v for k, v in (("dividends", dividends), ("splits", splits)) if v}


def about(symbol, rows, interval):
    today = dt.datetime.now(ZONE).date()

    def at(hour, minute, day=today):
        return int(dt.datetime(day.year, day.month, day.day, hour, minute, tzinfo=ZONE).timestamp())

    offset = int(dt.datetime.now(ZONE).utcoffset().total_seconds())

    def period(start, end):
        return {"timezone": "EST", "start": start, "end": end, "gmtoffset": offset}

    meta = {
        "currency": "USD", "symbol": symbol, "exchangeName": "NMS", "instrumentType": "EQUITY",
        "firstTradeDate": rows[0]["time"] if rows else None, "gmtoffset": offset, "timezone": "EST",
        "regularMarketTime": rows[-1]["time"] if rows else at(9, 30), "hasPrePostMarketData": True,
        "exchangeTimezoneName": "America/New_York", "priceHint": 2, "dataGranularity": interval,
        "regularMarketPrice": rows[-1]["close"] if rows else None, "range": "",
        "currentTradingPeriod": {
            "pre": period(at(4, 0), at(9, 30)), "regular": period(at(9, 30), at(16, 0)),
            "post": period(at(16, 0), at(20, 0)),
        },
        "validRanges": ["1d", "5d", "1mo", "1y", "max"],
    }  # fmt: skip
    if interval != "1d":
        days = sorted({dt.datetime.fromtimestamp(r["time"], ZONE).date() for r in rows})
        meta["tradingPeriods"] = [[period(at(9, 30, d), at(16, 0, d))] for d in days]
    return meta


def refusal(code, text):
    return {"chart": {"result": None, "error": {"code": code, "description": text}}}


def _handler(stand_in):  # noqa: C901
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, body, kind="application/json", headers=(), cut=False):
            data = body if isinstance(body, bytes) else body.encode()
            self.send_response(status)
            for name, value in (("Content-Type", kind), ("Content-Length", len(data)), *headers):
                self.send_header(name, str(value))
            self.end_headers()
            with suppress(OSError):  # the client may have gone away at its time-out
                self.wfile.write(data[: len(data) // 2] if cut else data)
                self.wfile.flush()
                if cut:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)

        def do_CONNECT(self):
            self.send_response(200, "Connection established")
            self.end_headers()
            self.wfile.flush()
            try:
                self.connection = stand_in.tls.wrap_socket(self.connection, server_side=True)
            except (ssl.SSLError, OSError):
                self.close_connection = True
                return
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)
            self.close_connection = False

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.reply(200, "{}")

        def do_GET(self):
            stand_in.log.append(self.path)
            parts = urlsplit(self.path)
            if parts.path.startswith(CHART):
                self.chart(unquote(parts.path.removeprefix(CHART)), parse_qs(parts.query))
            elif parts.path.endswith("/getcrumb"):
                limited = stand_in.has("crumb429")
                self.reply(
                    429 if limited else 200,
                    "Too Many Requests" if limited else "crumb",
                    "text/plain",
                )
            elif parts.path.startswith("/v7/finance/quote"):
                self.reply(200, json.dumps({"quoteResponse": {"result": [], "error": None}}))
            elif parts.path in ("/", "/consent"):
                cookie = ("Set-Cookie", "A3=d=standin; Max-Age=31557600; Path=/")
                self.reply(
                    404 if parts.path == "/" else 200, "<html></html>", "text/html", [cookie]
                )
            else:
                self.reply(
                    404, json.dumps({"finance": refusal("Not Found", "Quote not found")["chart"]})
                )

        def chart(self, symbol, query):
            mode = stand_in.fault(symbol, is_probe="events" not in query)
            pages = {
                "ratelimit": (429, "Edge: Too Many Requests", "text/plain"),
                "error500": (502, "<html>Bad Gateway</html>", "text/html"),
                "html": (200, "<html><body>sign in</body></html>", "text/html"),
                "down": (200, "<html>Will be right back...</html>", "text/html"),
            }
            if mode in pages:
                return self.reply(*pages[mode])
            if mode == "slow":
                time.sleep(stand_in.slow_seconds)
            status, answer = stand_in.chart(symbol, query, mode)
            data = json.dumps(answer).encode()
            if mode == "truncated":
                data = data[: max(40, len(data) // 2)]
            return self.reply(status, data, cut=mode == "cut")

    return Handler


def make_certificates():
    """A throw-away authority and a certificate for yahoo.com, by openssl."""
    folder = Path(tempfile.mkdtemp(prefix="standin-"))

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    authority, key, request = folder / "ca.pem", folder / "leaf.key", folder / "leaf.csr"
    new = ("req", "-newkey", "rsa:2048", "-nodes")
    openssl(*new, "-x509", "-days", 7, "-keyout", folder / "ca.key", "-out", authority, "-subj",
            "/CN=stand-in", "-addext", "basicConstraints=critical,CA:TRUE")  # fmt: skip
    openssl(*new, "-keyout", key, "-out", request, "-subj", "/CN=query2.finance.yahoo.com")
    names = folder / "names"
    names.write_text("subjectAltName=DNS:*.finance.yahoo.com,DNS:*.yahoo.com\n")
    openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", folder / "ca.key",
            "-CAcreateserial", "-days", 7, "-out", folder / "leaf.pem", "-extfile", names)  # fmt: skip
    return authority, folder / "leaf.pem", key
