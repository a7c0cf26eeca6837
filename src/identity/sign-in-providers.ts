/**
 * OpenID Connect providers of the configuration: the authorization request with PKCE, state and nonce,
 * the exchange of its code, and the validated claims. A provider is contacted at a sign-in only, with
 * limits of time and bytes; its discovery document is cached for an hour.
 */
import type { Configuration, CustomFetch } from 'openid-client';
import { type Config, proxyOf, type SignInProviderSettings } from '../config/config.ts';
import { type Clock, HOUR_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { sha256Hex } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { onDemand } from '../core/on-demand.ts';
import { headerText } from '../net/exchange.ts';
import { UpstreamPool, fetchWhole } from '../net/upstream-pool.ts';

const TIMEOUT_MS = 10 * SECOND_MS;
const LIMITS = {
  connectMs: TIMEOUT_MS,
  firstByteMs: TIMEOUT_MS,
  idleMs: TIMEOUT_MS,
  totalMs: TIMEOUT_MS,
};
/** Far more than the keys of the largest providers. */
const MAX_RESPONSE_BYTES = 512 * 1024;
const KEEP_DISCOVERY_MS = HOUR_MS;
const MAX_SUBJECT_CHARS = 255;
const MAX_EMAIL_CHARS = 254;
const MAX_NAME_CHARS = 100;
const MAX_GROUPS = 1_000;
/** A larger ID token is not stored; the sign-out at the provider then shows a question there. */
const MAX_ID_TOKEN_CHARS = 16_384;

/** A person that a provider has identified. Issuer and subject never change. */
export interface Person {
  readonly issuer: string;
  readonly subject: string;
  /** Verified, in lower case. */
  readonly email: string;
  readonly name: string;
  readonly groups: readonly string[];
  /** For the sign-out at the provider. */
  readonly idToken: string;
}

export interface ProviderParts {
  readonly config: { readonly current: Pick<Config, 'signIn' | 'proxies'> };
  readonly clock: Clock;
  readonly log: Log;
}

interface Discovered {
  readonly settings: SignInProviderSettings;
  readonly untilMs: number;
  readonly configuration: () => Promise<Configuration>;
}

export class SignInProviders {
  readonly #parts: ProviderParts;
  /** By id of the provider. */
  readonly #discovered = new Map<string, Discovered>();

  constructor(parts: ProviderParts) {
    this.#parts = parts;
  }

  /** Throws 404. */
  find(id: string): SignInProviderSettings {
    const { providers } = this.#parts.config.current.signIn;
    const found = providers.find((provider) => provider.id === id);
    if (found !== undefined) return found;
    throw new Fault('NOT_FOUND', { message: 'The server has no sign-in provider with this id' });
  }

  /** Returns the URL at the provider to which the browser navigates. `secret` stays in a cookie. */
  async begin(
    provider: SignInProviderSettings,
    redirectUri: string,
    secret: string,
  ): Promise<string> {
    return await this.#reach(provider, async ({ buildAuthorizationUrl }, configuration) => {
      const { state, nonce, verifier } = checksOf(provider, secret);
      const { calculatePKCECodeChallenge } = await import('openid-client');
      return buildAuthorizationUrl(configuration, {
        redirect_uri: redirectUri,
        scope: provider.scopes.join(' '),
        state,
        nonce,
        code_challenge: await calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
      }).href;
    });
  }

  /**
   * Returns the person of a response of the provider. `url`: the redirect URI with the query of the
   * response; `secret`: of the cookie. Throws `AUTHENTICATION_FAILED`, `SIGN_IN_NOT_ALLOWED` without a
   * verified address, 503.
   */
  async complete(
    provider: SignInProviderSettings,
    url: URL,
    secret: string | undefined,
  ): Promise<Person> {
    const { state, nonce, verifier } = checksOf(provider, secret ?? '');
    // Without a cookie anybody could compute the state.
    if (secret === undefined || url.searchParams.get('state') !== state) {
      throw new Fault('AUTHENTICATION_FAILED', {
        message: 'The sign-in was started in another browser or too long ago; start it again',
      });
    }
    if (url.searchParams.has('error')) throw rejectedBy(provider, url.searchParams.get('error'));
    const claims = await this.#reach(provider, async (client, configuration) => {
      const tokens = await client.authorizationCodeGrant(configuration, url, {
        pkceCodeVerifier: verifier,
        expectedState: state,
        expectedNonce: nonce,
        idTokenExpected: true,
      });
      const { id_token: idToken = '', access_token: accessToken } = tokens;
      const ofToken = tokens.claims() ?? { sub: '' };
      const { userinfo_endpoint: userInfo } = configuration.serverMetadata();
      const ofUser =
        userInfo === undefined
          ? {}
          : await client.fetchUserInfo(configuration, accessToken, ofToken.sub);
      return { ...ofUser, ...ofToken, idToken };
    });
    return personOf(provider, claims);
  }

  /** Returns the URL that ends the session at the provider; `undefined` if there is none. */
  async signOutUrl(id: string, idToken: string, returnTo: string): Promise<string | undefined> {
    const provider = this.#parts.config.current.signIn.providers.find((one) => one.id === id);
    if (provider?.signOutAtProvider !== true) return undefined;
    try {
      return await this.#reach(provider, async ({ buildEndSessionUrl }, configuration) => {
        if (configuration.serverMetadata().end_session_endpoint === undefined) return undefined;
        return buildEndSessionUrl(configuration, {
          post_logout_redirect_uri: returnTo,
          ...(idToken === '' ? {} : { id_token_hint: idToken }),
        }).href;
      });
    } catch (error) {
      // The session of this server has ended; the provider cannot be reached.
      if (error instanceof Fault) return undefined;
      throw error;
    }
  }

  /** Runs calls to a provider. Throws 503 if it cannot be reached, 401 if it rejects the sign-in. */
  async #reach<T>(
    provider: SignInProviderSettings,
    run: (client: typeof import('openid-client'), configuration: Configuration) => Promise<T>,
  ): Promise<T> {
    const { log } = this.#parts;
    const client = await import('openid-client');
    try {
      return await run(client, await this.#configurationOf(provider)());
    } catch (error) {
      if (error instanceof Fault) throw error;
      const unreachable = unreachableIn(error);
      // Messages and codes of the library contain no tokens; other causes can.
      const reason = reasonOf(unreachable ?? error);
      log.warn({ provider: provider.id, reason, code: codeOf(error) }, 'A company sign-in failed');
      if (unreachable !== undefined) {
        throw new Fault('SERVICE_UNAVAILABLE', {
          message: `The sign-in provider ${provider.label} cannot be reached; try again later, or sign in with an API key`,
        });
      }
      throw rejectedBy(provider, null);
    }
  }

  #configurationOf(settings: SignInProviderSettings): () => Promise<Configuration> {
    const nowMs = this.#parts.clock.monotonicMs();
    const known = this.#discovered.get(settings.id);
    if (known?.settings === settings && known.untilMs > nowMs) return known.configuration;
    const configuration = onDemand(() => this.#discover(settings));
    const untilMs = nowMs + KEEP_DISCOVERY_MS;
    this.#discovered.set(settings.id, { settings, untilMs, configuration });
    return configuration;
  }

  async #discover(settings: SignInProviderSettings): Promise<Configuration> {
    const client = await import('openid-client');
    const { issuer, clientId, clientSecret, clientAuthentication } = settings;
    const send = clientAuthentication === 'basic' ? 'ClientSecretBasic' : 'ClientSecretPost';
    const authentication = clientSecret === undefined ? client.None() : client[send](clientSecret);
    const isInsecure = issuer.startsWith('http:');
    return await client.discovery(new URL(issuer), clientId, undefined, authentication, {
      [client.customFetch]: this.#fetch,
      timeout: TIMEOUT_MS / SECOND_MS,
      execute: [
        // Validates the signature of ID tokens although they arrive over TLS.
        client.enableNonRepudiationChecks,
        ...(isInsecure ? [client.allowInsecureRequests] : []),
      ],
    });
  }

  /** Sends one request through the outgoing proxy of the configuration. */
  readonly #fetch: CustomFetch = async (url, { method, headers, body }) => {
    const { config, clock } = this.#parts;
    const { origin, pathname, search } = new URL(url);
    const proxy = proxyOf(config.current.proxies, url);
    const pool = new UpstreamPool({
      url: origin,
      proxy,
      maxConnections: 1,
      connectMs: TIMEOUT_MS,
      clock,
    });
    try {
      const fetched = await fetchWhole(pool, {
        method: method === 'POST' ? 'POST' : 'GET',
        path: pathname + search,
        headers: Object.entries(headers).flat(),
        body: body === null || body === undefined ? null : Buffer.from(textOf(body)),
        limits: LIMITS,
        maxResponseBytes: MAX_RESPONSE_BYTES,
      });
      if (!fetched.ok) throw new Unreachable(fetched.message);
      const { status } = fetched;
      if (status >= 500) throw new Unreachable(`${origin} responded with status ${status}`);
      const type = headerText(fetched.headers, 'content-type');
      const hasBody = status >= 200 && status !== 204 && status !== 304;
      return new Response(hasBody ? new Uint8Array(fetched.body) : null, {
        status,
        headers: type === undefined ? {} : { 'content-type': type },
      });
    } finally {
      await pool.destroy();
    }
  };
}

class Unreachable extends Error {}

/** The library wraps errors of its requests. */
function unreachableIn(error: unknown): Unreachable | undefined {
  if (error instanceof Unreachable) return error;
  return error instanceof Error ? unreachableIn(error.cause) : undefined;
}

/** The error code of the provider, such as `invalid_client`, or of the library. */
function codeOf(error: unknown): unknown {
  if (!(error instanceof Error)) return undefined;
  if ('error' in error) return error.error;
  return 'code' in error ? error.code : undefined;
}

function rejectedBy({ label }: SignInProviderSettings, code: string | null): Fault {
  const message =
    code === 'access_denied'
      ? `The sign-in at ${label} was cancelled`
      : `The sign-in at ${label} failed; start it again`;
  return new Fault('AUTHENTICATION_FAILED', { message });
}

function textOf(body: unknown): string {
  if (typeof body === 'string' || body instanceof URLSearchParams) return String(body);
  throw new TypeError('The body of a request to a sign-in provider must be text');
}

/** Derives the values of one sign-in from its secret, so that the server stores none of them. */
function checksOf({ id }: SignInProviderSettings, secret: string) {
  const derived = (use: string): string => sha256Hex(`${use} ${id} ${secret}`);
  return { state: derived('state'), nonce: derived('nonce'), verifier: derived('verifier') };
}

type Claims = Readonly<Record<string, unknown>>;

function personOf(provider: SignInProviderSettings, claims: Claims): Person {
  const text = (name: string): string => {
    const value = claims[name];
    return typeof value === 'string' ? value : '';
  };
  const email = text('email').trim().toLowerCase();
  const { email_verified: isVerified } = claims;
  const isTrusted = isVerified === true || (isVerified === undefined && provider.trustEmails);
  if (!isTrusted || !EMAIL.test(email) || email.length > MAX_EMAIL_CHARS) {
    throw new Fault('SIGN_IN_NOT_ALLOWED', {
      message: `${provider.label} returned no verified email address for this user`,
    });
  }
  const subject = text('sub');
  if (subject === '' || subject.length > MAX_SUBJECT_CHARS) throw rejectedBy(provider, null);
  const groups = claimAt(claims, provider.groupsClaim);
  const idToken = text('idToken');
  return {
    issuer: provider.issuer,
    subject,
    email,
    name: text('name').slice(0, MAX_NAME_CHARS),
    groups: Array.isArray(groups)
      ? groups.slice(0, MAX_GROUPS).filter((group) => typeof group === 'string')
      : [],
    idToken: idToken.length > MAX_ID_TOKEN_CHARS ? '' : idToken,
  };
}

/** One address, without characters that a rule of domains could read in two ways. */
const EMAIL = /^[^\s@"<>,;]+@(?:[a-z\d-]+\.)*[a-z\d-]+$/;

/** The claim with this name, else the member at the path of names between dots. */
function claimAt(claims: Claims, path: string): unknown {
  if (path in claims) return claims[path];
  let value: unknown = claims;
  for (const name of path.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name))
      return undefined;
    value = (value as Claims)[name]; // an object with this member
  }
  return value;
}
