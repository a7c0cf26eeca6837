/** What the console asks as code that its viewer can run, with a key in place of the session. */
import { type Credential, type Sample, samplesOf, sdkMethod } from './code-samples.ts';
import { API_URL, SERVICE } from './page-facts.ts';

export function chatSamples(body: Readonly<Record<string, unknown>>): readonly Sample[] {
  return jsonSamples('/chat/completions', body);
}

/** Of any route that takes JSON. */
export function jsonSamples(
  path: string,
  body: Readonly<Record<string, unknown>>,
  credential: Credential = 'API_KEY',
): readonly Sample[] {
  return samplesOf({
    url: API_URL + path,
    credential,
    body: { kind: 'json', value: shortened(body) },
    sdk: sdkOf(path),
  });
}

/** Of a route that takes one file; `output` is the name of the file that it answers with. */
export function formSamples(
  path: string,
  file: { readonly field: string; readonly name: string },
  output?: string,
): readonly Sample[] {
  const sdk = sdkOf(path);
  const fields = [{ name: file.field, value: file.name, isFile: true }];
  // Optional on the wire, and the SDKs insist on it.
  if (sdk !== undefined) fields.push({ name: 'model', value: 'default', isFile: false });
  return samplesOf({
    url: API_URL + path,
    credential: 'API_KEY',
    body: { kind: 'form', fields },
    output,
    sdk,
  });
}

function sdkOf(path: string) {
  const method = sdkMethod(path);
  return method && { baseUrl: API_URL, method, isBeyond };
}

/** Parameters that the SDKs do not know go beside the others. */
function isBeyond(name: string): boolean {
  return name === `${SERVICE}_parameters` || name === 'top_k' || name === 'min_p';
}

const MOST_CHARS = 2_000;

/** Files as data URLs would bury the request. */
function shortened(value: unknown): unknown {
  if (typeof value === 'string') {
    return value.startsWith('data:') && value.length > MOST_CHARS
      ? `${value.slice(0, 60)}…`
      : value;
  }
  if (Array.isArray(value)) return value.map(shortened);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, shortened(one)]));
}
