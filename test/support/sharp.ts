/** The image library of the background removal engine, for the images of tests. */
import { useEnginePackages } from './engine-packages.ts';

useEnginePackages('cutout');
export const { default: sharp } = await import('sharp');
