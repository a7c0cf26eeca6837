/** `farebox verify`: who signed an offer or a receipt, and whether it says what was signed. */
import { readFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { isoTime, SECOND_MS } from '../core/clock.ts';
import { reasonOf } from '../core/log.ts';
import { Guard } from '../net/guard.ts';
import { type Verification, type VerifiedItem, verifySigned } from '../payments/payments.ts';
import { type Cli, httpAddress } from './command.ts';
import { type Console, listing } from './terminal.ts';

/** A 402 with every option signed twice is a tenth of it. */
const MAX_BYTES = 1024 * 1024;
const TIMEOUT_MS = 20 * SECOND_MS;
const DID_DOCUMENT = '/.well-known/did.json';
/** A server on this machine is asked too; what a document names beside it must be public. */
const THIS_MACHINE = ['127.0.0.0/8', '::1/128'];
const AUTHORIZATION = 'FAREBOX_AUTHORIZATION';

export function verifyCommand(cli: Cli): void {
  cli.program
    .command('verify')
    .description(`Check a signed offer or receipt

Takes a signed receipt (GET /usage/{request id}/signed), a PAYMENT-RESPONSE or PAYMENT-REQUIRED
header, a 402 body, or a compact JWS; - reads it from the standard input. A URL is asked with the
Authorization header of FAREBOX_AUTHORIZATION, where that is set.

Ends with exit code 0 when every signature was made by a key that the service publishes and all
claims are as they were signed, and with 1 when one is not, or the keys cannot be had.

Example: farebox verify receipt.json --issuer https://api.example.com`)
    .argument('<file|url|->', 'Name one file or URL, or - for the standard input')
    .option(
      '--issuer <url>',
      'whose signature it must be, such as https://api.example.com (default: the service that the document names)',
      (text) => new URL(httpAddress(text)).origin,
    )
    .option(
      '--keys <file>',
      'the published keys of the service, its /.well-known/did.json (default: fetched)',
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
    if (stdin === undefined) throw new Error('There is no standard input');
    return await readAll(stdin(), 'The standard input');
  }
  if (/^https?:\/\//i.test(source)) return await fetchTyped(console, source);
  return await readFileOf(console, source);
}

async function readFileOf({ cwd }: Console, path: string): Promise<string> {
  try {
    return await readFile(isAbsolute(path) ? path : join(cwd, path), 'utf8');
  } catch (error) {
    throw new Error(`The file ${path} cannot be read: ${reasonOf(error)}`, { cause: error });
  }
}

/** What the person at the terminal named. */
async function fetchTyped({ env }: Console, url: string): Promise<string> {
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
  throw new Error(`${url} answered with status ${response.status}${advice}`);
}

async function readAll(source: AsyncIterable<Uint8Array | string>, what: string): Promise<string> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of source) {
    const bytes = Buffer.from(chunk);
    sizeBytes += bytes.length;
    if (sizeBytes > MAX_BYTES) throw new Error(`${what} has more than ${MAX_BYTES} bytes`);
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** The origin comes out of the document, which may be anybody's. */
async function fetchKeys(origin: string): Promise<string> {
  const guard = new Guard({ allow: THIS_MACHINE, ports: [80, 443, Number(new URL(origin).port)] });
  const limits = { maxBytes: MAX_BYTES, timeoutMs: TIMEOUT_MS, maxRedirects: 0 };
  try {
    return (await guard.fetch(origin + DID_DOCUMENT, limits)).bytes.toString('utf8');
  } catch (error) {
    throw new Error(
      `The keys of ${origin} cannot be had (${reasonOf(error)}); name a copy of its ${DID_DOCUMENT} with --keys`,
      { cause: error },
    );
  }
}

function shown(verification: Verification, isNamed: boolean): string {
  const { issuer, items, usage, ok } = verification;
  const parts = items.map((item) => shownItem(item));
  if (usage !== undefined) parts.push(`Usage\n${listing(pairsOf(usage))}`);
  const verdict = ok
    ? `Signed by ${issuer}, and unchanged${isNamed ? '' : `; is that the service that you mean? --issuer ${issuer} makes it certain`}`
    : `NOT verified: do not rely on it`;
  return `${parts.join('\n')}\n${verdict}\n`;
}

function shownItem({ kind, format, signer, claims, problem }: VerifiedItem): string {
  const { usage: _, version: __, ...said } = claims;
  return `${kind === 'offer' ? 'Offer' : 'Receipt'} (${format})\n${listing([
    ['Signature', problem ?? `good, by ${signer ?? ''}`],
    ...pairsOf(said),
  ])}`;
}

/** Times of claims are Unix seconds. */
function pairsOf(claims: Readonly<Record<string, unknown>>): (readonly [string, string])[] {
  return Object.entries(claims).map(([name, value]) => {
    if ((name === 'issuedAt' || name === 'validUntil') && Number.isSafeInteger(value)) {
      return [name, isoTime(Number(value) * SECOND_MS)];
    }
    return [name, typeof value === 'string' ? value : JSON.stringify(value)];
  });
}
