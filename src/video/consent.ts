/**
 * The consent that a model may require before it accepts media: a policy with a version, accepted
 * in the `consents` of the request. Without it the request is rejected with 409 and the policy.
 */
import type { VideoModelSettings } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { type VideoQueueRequest, mediaUrlsOf } from './video-requests.ts';

/** Throws `NEEDS_CONSENT` (409). */
export function requireConsent(
  { consent }: VideoModelSettings,
  request: VideoQueueRequest,
  docsUrl: string,
): void {
  if (consent === undefined || hasAgreed(consent, request.consents)) return;
  const { flow, version, policyText, roles } = consent;
  const given = mediaUrlsOf(request).map(({ role }) => role);
  const needing = given.filter(
    (role) => roles.length === 0 || roles.includes(role.split('.')[0] ?? role),
  );
  if (needing.length === 0) return;
  const message = `The model ${request.model} accepts ${needing.join(', ')} only with your consent: read the policy and send "consents": {"${flow}": {"consent_version": "${version}"}}`;
  throw new Fault('NEEDS_CONSENT', {
    message,
    body: {
      error: { code: 'needs_consent', message },
      consent_flow: flow,
      face_media_roles: needing,
      consent: { consent_version: version, policy_text: policyText },
      docs_url: docsUrl,
    },
  });
}

/** Accepts `{flow: {consent_version}}`, and the same without the name of the flow. */
function hasAgreed(
  { flow, version }: NonNullable<VideoModelSettings['consent']>,
  consents: VideoQueueRequest['consents'],
): boolean {
  const own = consents?.[flow] ?? consents;
  if (own === version) return true;
  return typeof own === 'object' && own !== null && versionOf(own) === version;
}

function versionOf(consent: object): unknown {
  return 'consent_version' in consent ? consent.consent_version : undefined;
}
