/** The image library of the background removal engine, for the images of tests. */
import { useEnginePackages } from '../../src/engines/local/engine-loader.ts';

useEnginePackages('cutout', undefined);
export const { default: sharp } = await import('sharp');
