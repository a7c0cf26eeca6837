/**
 * Challenges for wallets that create an API key: a JSON Web Token (HS256) that the wallet signs as text.
 * It proves that the signature is recent and for this service.
 */
import { encodeBase64Url } from '../header-codec.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import { isSameMac, macOf } from '../secrets.ts';
import type { SignIn } from './sign-in.ts';

const LIFE_MS = 15 * MINUTE_MS;
const MAX_CHARS = 512;
const HEADER = encodeBase64Url({ alg: 'HS256', typ: 'JWT' });

export interface KeyProof {
  readonly address: string;
  readonly token: string;
  readonly signature: string;
}

interface KeyChallengeOptions {
  readonly secret: string;
  readonly signIn: SignIn;
  readonly clock: Clock;
  readonly ids: Ids;
}

export class KeyChallenges {
  readonly #options: KeyChallengeOptions;

  constructor(options: KeyChallengeOptions) {
    this.#options = options;
  }

  /** Returns a challenge that is valid for 15 minutes. */
  mint(): string {
    const { clock, ids } = this.#options;
    const nowMs = clock.nowMs();
    const claims = encodeBase64Url({
      iat: Math.floor(nowMs / SECOND_MS),
      exp: Math.floor((nowMs + LIFE_MS) / SECOND_MS),
      jti: ids.hex(16),
    });
    return `${HEADER}.${claims}.${this.#mac(claims)}`;
  }

  /** Returns the wallet that signed a challenge, and spends the challenge. Throws a 401 Fault. */
  async signerOf({ address, token, signature }: KeyProof, clientAddress: string): Promise<string> {
    const { id, expiresMs } = this.#read(token);
    const { signIn } = this.#options;
    const wallet = await signIn.signerOf(address, { text: token, signature, clientAddress });
    if (await signIn.useOnce(wallet, `key.${id}`, expiresMs)) return wallet;
    throw refused('The token was already used; get a new one');
  }

  /** Throws a 401 Fault for a token that is not ours or has expired. */
  #read(token: string): { readonly id: string; readonly expiresMs: number } {
    const [header, claims = '', mac = '', ...rest] = token.slice(0, MAX_CHARS).split('.');
    const isOurs = header === HEADER && rest.length === 0 && isSameMac(mac, this.#mac(claims));
    if (!isOurs) throw refused('The token was not issued by this service; get a new one');
    // Written by `mint`: the signature was checked.
    const { exp, jti } = JSON.parse(Buffer.from(claims, 'base64url').toString()) as {
      exp: number;
      jti: string;
    };
    const expiresMs = exp * SECOND_MS;
    if (expiresMs <= this.#options.clock.nowMs())
      throw refused('The token has expired; get a new one');
    return { id: jti, expiresMs };
  }

  #mac(claims: string): string {
    return macOf(this.#options.secret, `${HEADER}.${claims}`);
  }
}

export function refused(message: string): Fault {
  return new Fault('X402_INVALID_SIGN_IN', { message });
}
