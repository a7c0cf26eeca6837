import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VideoModelSettings } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { requireConsent } from './consent.ts';
import { VideoQueueRequest } from './video-requests.ts';

const DOCS = 'https://api.example.com/docs';
const POLICY = { flow: 'face_media', version: 'v2', policyText: 'I may use the likeness.' };

function refusal(request: object, consent: object | null = POLICY): unknown {
  const settings = VideoModelSettings.parse({
    task: 'image-to-video',
    pricing: { kind: 'generation', perGeneration: '0.1' },
    durations: ['5s'],
    ...(consent === null ? {} : { consent }),
  });
  const whole = VideoQueueRequest.parse({ model: 'reel', prompt: 'x', duration: '5s', ...request });
  try {
    requireConsent(settings, whole, DOCS);
    return undefined;
  } catch (error) {
    assert.ok(error instanceof Fault);
    assert.equal(error.status, 409);
    return error.options.body;
  }
}

const IMAGE = { image_url: 'https://e.com/a.png' };

test('media without consent is rejected with 409 and the policy', () => {
  const { error, ...body } = refusal(IMAGE) as { error: { code: string; message: string } };
  assert.equal(error.code, 'needs_consent');
  assert.match(error.message, /"consents": \{"face_media": \{"consent_version": "v2"\}\}/);
  assert.deepEqual(body, {
    consent_flow: 'face_media',
    face_media_roles: ['image_url'],
    consent: { consent_version: 'v2', policy_text: 'I may use the likeness.' },
    docs_url: DOCS,
  });
});

test('a consent must name the current version', () => {
  const version = (consent_version: string) => ({ consent_version });
  for (const consents of [{ face_media: version('v2') }, version('v2'), { face_media: 'v2' }]) {
    assert.equal(refusal({ ...IMAGE, consents }), undefined, JSON.stringify(consents));
  }
  for (const consents of [
    { face_media: version('v1') },
    { other: version('v2') },
    { face_media: true },
  ]) {
    assert.ok(refusal({ ...IMAGE, consents }), JSON.stringify(consents));
  }
});

test('consent is not required for other media or models', () => {
  assert.equal(refusal({}), undefined);
  assert.equal(refusal(IMAGE, null), undefined);
  const roles = ['reference_image_urls'];
  assert.equal(refusal(IMAGE, { ...POLICY, roles }), undefined);
  const references = { reference_image_urls: ['https://e.com/a.png'] };
  const body = refusal({ ...IMAGE, ...references }, { ...POLICY, roles }) as object;
  assert.deepEqual('face_media_roles' in body && body.face_media_roles, ['reference_image_urls.0']);
});
