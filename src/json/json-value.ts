/** The JSON value of a body, of whatever kind it is. */
import { Fault } from '../core/faults.ts';
import { jsonBytes, refuseExcess } from './json-scan.ts';

/** The JSON body of a request; 400 with a sentence when it is not JSON. */
export function parseJsonBody(body: Buffer): unknown {
  const { json, text } = jsonBytes(body);
  refuseExcess(json);
  try {
    return JSON.parse(text);
  } catch (error) {
    // The parser's sentence names the position and holds a snippet of the caller's own body.
    const reason = error instanceof Error ? error.message : 'unknown';
    throw new Fault('INVALID_JSON', {
      message: `The body is not valid JSON: ${reason}`,
    });
  }
}
