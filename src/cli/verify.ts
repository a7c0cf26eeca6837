/** `farebox verify`: verifies the signature and the claims of an offer or a receipt. */
import { readFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { isoTime, SECOND_MS } from '../core/clock.ts';
import { reasonOf } from '../core/log.ts';
import { Guard } from '../net/guard.ts';
import { type Verification, type VerifiedItem, verifySigned } from '../payments/payments.ts';
import { type Cli, httpAddress } from './command.ts';
import { type Console, listing } from './terminal.ts';

/** Ten times a 402 body in which every option has two signatures. */
const MAX_BYTES = 1024 * 1024;
const TIMEOUT_MS = 20 * SECOND_MS;
const DID_DOCUMENT = '/.well-known/did.json';
/** Loopback is allowed for a server on this machine; any other issuer must have a public address. */
const THIS_MACHINE = ['127.0.0.0/8', '::1/128'];
const AUTHORIZATION = 'FAREBOX_AUTHORIZATION';

export function verifyCommand(cli: Cli): void {
  cli.program
    .command('verify')
    .description(`Verify a signed offer or receipt

Accepts a signed receipt (GET /usage/{request id}/signed), a PAYMENT-RESPONSE or PAYMENT-REQUIRED
header, a 402 body, or a compact JWS. A request to a URL sends FAREBOX_AUTHORIZATION, if it is set, as
the Authorization header.

Exits with code 0 if every signature belongs to a published key of the service and covers all claims.
Exits with code 1 if one does not, or if the keys cannot be fetched.

Example: farebox verify receipt.json --issuer https://api.example.com`)
    .argument('<source>', 'file, URL, or - for standard input')
    .option(
      '--issuer <url>',
      'required signer, such as https://api.example.com (default: the issuer that the document names)',
      (text) => new URL(httpAddress(text)).origin,
    )
    .option(
      '--keys <file>',
      'copy of /.well-known/did.json of the issuer (default: fetched from the issuer)',
    )
    .action(async (source, { issuer, keys }) => {
      const text = await readSource(cli.console, source);
      const verification = await verifySigned(text, {
        issuer,
        keysOf: async (origin) =>
          JSON.parse(
            keys === undefined ? await fetchKeys(origin) : await readFileOf(cli.console, keys),
          ),
      });
      cli.print(verification, shown(verification, issuer !== undefined));
      cli.exitCode = verification.ok ? 0 : 1;
    });
}

async function readSource(console: Console, source: string): Promise<string> {
  const { stdin } = console;
  if (source === '-') {
    if (stdin === undefined) throw new Error('Standard input is not available; pass a file or URL');
    return await readAll(stdin(), 'Standard input');
  }
  if (/^https?:\/\//i.test(source)) return await fetchSource(console, source);
  return await readFileOf(console, source);
}

async function readFileOf({ cwd }: Console, path: string): Promise<string> {
  try {
    return await readFile(isAbsolute(path) ? path : join(cwd, path), 'utf8');
  } catch (error) {
    throw new Error(`The file ${path} cannot be read: ${reasonOf(error)}`, { cause: error });
  }
}

async function fetchSource({ env }: Console, url: string): Promise<string> {
  const authorization = env[AUTHORIZATION];
  const response = await fetch(url, {
    headers: authorization === undefined ? {} : { authorization },
    redirect: 'error',
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }).catch((error: unknown) => {
    throw new Error(`${url} cannot be fetched: ${reasonOf(error)}`, { cause: error });
  });
  const text = response.body === null ? '' : await readAll(response.body, url);
  if (response.ok) return text;
  const lacks = response.status === 401 || response.status === 402;
  const advice = lacks ? `; set ${AUTHORIZATION} to "Bearer " and an API key` : '';
  throw new Error(`${url} returned status ${response.status}${advice}`);
}

async function readAll(source: AsyncIterable<Uint8Array | string>, what: string): Promise<string> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of source) {
    const bytes = Buffer.from(chunk);
    sizeBytes += bytes.length;
    if (sizeBytes > MAX_BYTES) throw new Error(`${what} exceeds ${MAX_BYTES} bytes`);
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Uses the guard, because the origin comes from an untrusted document. */
async function fetchKeys(origin: string): Promise<string> {
  const guard = new Guard({ allow: THIS_MACHINE, ports: [80, 443, Number(new URL(origin).port)] });
  const limits = { maxBytes: MAX_BYTES, timeoutMs: TIMEOUT_MS, maxRedirects: 0 };
  try {
    return (await guard.fetch(origin + DID_DOCUMENT, limits)).bytes.toString('utf8');
  } catch (error) {
    throw new Error(
      `The keys of ${origin} cannot be fetched (${reasonOf(error)}); pass a copy of its ${DID_DOCUMENT} with --keys`,
      { cause: error },
    );
  }
}

function shown(verification: Verification, isNamed: boolean): string {
  const { issuer, items, usage, ok } = verification;
  const parts = items.map((item) => shownItem(item));
  if (usage !== undefined) parts.push(`Usage\n${listing(pairsOf(usage))}`);
  const verdict = ok
    ? `Verified: signed by ${issuer} and unchanged${isNamed ? '' : `. The document names this issuer; --issuer ${issuer} requires it`}`
    : `NOT verified: do not rely on this document`;
  return `${parts.join('\n')}\n${verdict}\n`;
}

function shownItem({ kind, format, signer, claims, problem }: VerifiedItem): string {
  const { usage: _, version: __, ...rest } = claims;
  return `${kind === 'offer' ? 'Offer' : 'Receipt'} (${format})\n${listing([
    ['Signature', problem ?? `valid, by ${signer ?? ''}`],
    ...pairsOf(rest),
  ])}`;
}

/** Formats claims; their times are Unix seconds. */
function pairsOf(claims: Readonly<Record<string, unknown>>): (readonly [string, string])[] {
  return Object.entries(claims).map(([name, value]) => {
    if ((name === 'issuedAt' || name === 'validUntil') && Number.isSafeInteger(value)) {
      return [name, isoTime(Number(value) * SECOND_MS)];
    }
    return [name, typeof value === 'string' ? value : JSON.stringify(value)];
  });
}
